// What the launches of all operators have in common, handed to their blocks by value, and the steps
// that all of them take: waiting for a flag, leaving.
#pragma once
#include <cstdint>

#include <mkernel/tensor.h>

#include "command/queue.h"
#include "core/flag_word.h"
#include "core/watchdog.h"
#include "protocol/launch_state.h"
#include "schedule/cluster.h"

namespace mkernel {

/// Pitches are in bytes.
struct LaunchWork {
  ClusterShape cluster;
  uint32_t rank = 0;
  uint32_t node = 0;  // of the rank, and its place there
  uint32_t gpu = 0;
  uint32_t num_blocks = 0;

  // Work space.
  char* own_slots = nullptr;
  char* const* peer_slots = nullptr;      // by gpu index in the node; own ones too
  uint32_t* const* peer_flags = nullptr;  // by gpu index in the node
  uint64_t network_address = 0;           // of the slots, the same number on every rank

  LaunchState* state = nullptr;
  CommandQueue queue;
  Watchdog dog;

  // Operands of this launch.
  const char* a = nullptr;
  uint64_t a_pitch = 0;
  const char* b = nullptr;
  uint64_t b_pitch = 0;
  char* c = nullptr;
  uint64_t c_pitch = 0;
  uint32_t k = 0;
  DType dtype = DType::kBf16;
  BLayout b_layout = BLayout::kKN;

  /// A byte of the work space of a rank of this node.
  MK_HD char* slot_at(uint32_t local_rank, uint64_t offset) const {
    return peer_slots[cluster.gpu_of(local_rank)] + offset;
  }
  /// A flag of a rank of this node.
  MK_HD uint32_t* flag(uint32_t local_rank, uint32_t index) const {
    return flag_word(peer_flags[cluster.gpu_of(local_rank)], index);
  }
};

/// Tells the blocks of this rank that a wait was in vain, in this launch and all later ones.
MK_HD void mark_broken(const LaunchWork& op) { store_relaxed<Scope::kGpu>(&op.state->broken, 1u); }
MK_HD bool broken(const LaunchWork& op) {
  return load_relaxed<Scope::kGpu>(&op.state->broken) != 0;
}

/// Waits until `flag` of this rank has reached `want`. One thread of a block. `heard`: see
/// Watchdog::wait.
template <class Heard>
MK_HD bool await_flag(const LaunchWork& op, uint32_t flag, uint32_t want, const WaitSite& site,
                      Tally& tally, Heard&& heard) {
  uint32_t* word = op.flag(op.rank, flag);
  const auto seen = [&] { return load_acquire<Scope::kSys>(word); };
  const WaitResult result = op.dog.wait(site, want, seen, heard);
  tally.waits += result.waited ? 1 : 0;
  if (!result.ok) mark_broken(op);
  return result.ok;
}

/// Whether any of `count` flags of this rank, from `first` on, has reached `want`. It says that
/// their writer has begun, not that what they stand for may be read.
MK_HD bool any_reached(const LaunchWork& op, uint32_t first, uint32_t count, uint32_t want) {
  for (uint32_t i = 0; i < count; ++i)
    if (reached(load_relaxed<Scope::kSys>(op.flag(op.rank, first + i)), want)) return true;
  return false;
}

/// Calls visit(peer) for the other ranks of the node, until it says false.
template <class Visit>
MK_HD bool for_each_local_peer(const LaunchWork& op, Visit&& visit) {
  for (uint32_t step = 1; step < op.cluster.gpus; ++step)
    if (!visit(op.cluster.local_peer(op.rank, step))) return false;
  return true;
}

template <class Visit>
MK_HD bool for_each_rail_peer(const LaunchWork& op, Visit&& visit) {
  for (uint32_t step = 1; step < op.cluster.nodes; ++step)
    if (!visit(op.cluster.rail_peer(op.rank, step))) return false;
  return true;
}

/// Raises a flag of a peer: of a local one by a store, of a rail peer by a message.
MK_HD bool raise_flag(const LaunchWork& op, uint32_t peer, uint32_t flag, uint32_t value) {
  if (!op.cluster.same_node(op.rank, peer))
    return op.queue.push({0, 0, 0, value, flag, static_cast<uint16_t>(peer)}, op.dog);
  store_release<Scope::kSys>(op.flag(peer, flag), value);
  return true;
}

/// The number of the running launch. Each role reads it for itself: held across the main loop, it
/// would cost a register that the accumulators need.
MK_HD uint32_t running_epoch(const LaunchWork& op) {
  return load_acquire<Scope::kGpu>(&op.state->epoch);
}

/// Resets the tickets and advances the epoch. The last block to leave; nobody else runs.
MK_HD void end_epoch(const LaunchWork& op, uint32_t next) {
  LaunchState& s = *op.state;
  store_relaxed<Scope::kGpu>(&s.role_ticket, 0u);
  store_relaxed<Scope::kGpu>(&s.task_ticket, 0u);
  store_relaxed<Scope::kGpu>(&s.tile_ticket, 0u);
  store_relaxed<Scope::kGpu>(&s.left, 0u);
  ++s.launches;
  store_release<Scope::kSys>(&s.epoch, next);
}

/// All threads leave their launch; the last block's leader calls end(epoch).
template <class Block, class End>
MK_HD void leave_launch(Block& block, const LaunchWork& op, End&& end) {
  block.sync();
  if (!block.leader()) return;
  const uint32_t epoch = running_epoch(op);
  if (add_acq_rel<Scope::kGpu>(&op.state->left, 1u) + 1 == op.num_blocks) end(epoch);
}

}  // namespace mkernel
