// AllGather+GEMM as one launch on one rank: who moves and computes what, who waits for which flag.
// Both machines run this code. A Block is what stands for a thread block; it must provide
//   bool leader()                      one thread of the block; it alone waits, signals, draws
//   void sync()                        block barrier
//   bool all(bool ok)                  block barrier; true if every thread's ok is
//   uint32_t broadcast(uint32_t v)     block barrier; the leader's v
//   void copy_rows(const RowCopy&)     all threads; may be in flight until the next sync()
//   void split(feed, multiply)         runs feed() on the leader beside multiply() on other threads
// and what tile_loops.h asks for.
#pragma once
#include <cstdint>

#include "control/fixed_split.h"
#include "protocol/launch_work.h"
#include "protocol/slot_flags.h"
#include "protocol/tile_loops.h"
#include "schedule/all_gather_tasks.h"
#include "schedule/gather_tile_order.h"

namespace mkernel {

/// Everything a launch needs, handed to its blocks by value. Pitches are in bytes. The work space
/// is the gathered A, flags.slots times [m, k].
struct AllGatherGemmWork : LaunchWork {
  GatherTasks tasks;
  GatherTileOrder tiles;
  SlotFlags flags;
  FixedSplit split;

  uint64_t slot_bytes = 0;
  uint64_t slot_pitch = 0;

  bool lends_slot = false;     // the caller reads the gathered A until the next launch
  bool ends_together = false;  // the launch ends when all peers are done with it
  uint64_t engine_bytes = 0;   // that copy engines write to local peers in a launch

  MK_HD uint64_t row_bytes() const { return uint64_t{k} * kElementBytes; }

  MK_HD uint64_t slot_offset(uint32_t epoch, uint64_t row) const {
    return flags.slot_of(epoch) * slot_bytes + row * slot_pitch;
  }
  MK_HD char* slot_row(uint32_t local_rank, uint32_t epoch, uint64_t row) const {
    return slot_at(local_rank, slot_offset(epoch, row));
  }
  /// Own rows are computed from the caller's A as it is; all others from the work space.
  MK_HD bool in_place(uint32_t slice) const { return slice == rank; }
};

/// Whether any rows of a slice have come in this launch, so that its rank must have begun.
MK_HD bool any_arrived(const AllGatherGemmWork& op, uint32_t epoch, uint32_t slice) {
  const uint32_t first = op.flags.arrived(op.flags.slot_of(epoch), slice, 0);
  return slice == op.rank || any_reached(op, first, op.flags.chunks, epoch);
}

MK_HD bool await_chunk(const AllGatherGemmWork& op, uint32_t epoch, uint32_t slice, uint32_t chunk,
                       Tally& tally) {
  const uint32_t flag = op.flags.arrived(op.flags.slot_of(epoch), slice, chunk);
  return await_flag(op, flag, epoch, {Place::kChunkArrived, slice, chunk}, tally,
                    [&] { return any_arrived(op, epoch, slice); });
}

/// Calls visit(peer) for every rank that this one writes to, which are also those that write to it.
template <class Visit>
MK_HD bool for_each_peer(const AllGatherGemmWork& op, Visit&& visit) {
  return for_each_local_peer(op, visit) && for_each_rail_peer(op, visit);
}

/// Waits until every peer is done with the slots of launches up to `epoch`: nobody uses them any
/// more, neither at the peers nor, as the source of a write, at this rank. A peer's caller may
/// launch late, and nothing tells that from a launch that stands still.
MK_HD bool await_credit(const AllGatherGemmWork& op, uint32_t epoch, Tally& tally) {
  return for_each_peer(op, [&](uint32_t peer) {
    return await_flag(op, op.flags.credit(peer), epoch,
                      {Place::kSlotFree, peer, op.flags.slot_of(epoch)}, tally,
                      [] { return false; });
  });
}

/// Copies one chunk into the work space of a rank of this node and tells that rank.
template <class Block>
MK_HD void copy_chunk(Block& block, const AllGatherGemmWork& op, uint32_t epoch,
                      const GatherTask& t, const Rows& rows, Tally& tally) {
  const uint64_t row = op.tasks.chunks.split.slice(t.slice).begin + rows.begin;
  RowCopy copy{
      op.slot_row(t.dst, epoch, row), op.slot_pitch, nullptr, 0, rows.count, op.row_bytes()};
  if (t.slice == op.rank) {
    copy.src = op.a + rows.begin * op.a_pitch;
    copy.src_pitch = op.a_pitch;
  } else {
    copy.src = op.slot_row(op.rank, epoch, row);
    copy.src_pitch = op.slot_pitch;
  }
  block.copy_rows(copy);
  block.sync();
  if (!block.leader()) return;
  store_release<Scope::kSys>(
      op.flag(t.dst, op.flags.arrived(op.flags.slot_of(epoch), t.slice, t.chunk)), epoch);
  if (t.dst != op.rank) tally.local_bytes += rows.count * op.row_bytes();
}

/// Hands one staged chunk to the network. Called by the leader.
MK_HD bool send_chunk(const AllGatherGemmWork& op, uint32_t epoch, const GatherTask& t,
                      const Rows& rows, Tally& tally) {
  const uint64_t row = op.tasks.chunks.split.slice(t.slice).begin + rows.begin;
  const uint64_t address = op.network_address + op.slot_offset(epoch, row);
  const auto bytes = static_cast<uint32_t>(rows.count * op.slot_pitch);
  tally.network_bytes += bytes;
  return op.queue.push(
      {address, address, bytes, epoch, op.flags.arrived(op.flags.slot_of(epoch), t.slice, t.chunk),
       static_cast<uint16_t>(t.dst)},
      op.dog);
}

/// A communicating block: claims tasks in order until there are none.
template <class Block>
MK_HD void communicate(Block& block, const AllGatherGemmWork& op, uint32_t epoch, Tally& tally) {
  if (!block.all(!block.leader() || await_credit(op, op.flags.credit_needed(epoch), tally))) return;
  for (;;) {
    const uint32_t i = block.broadcast(block.leader() ? draw(&op.state->task_ticket) : 0);
    if (i >= op.tasks.size()) return;
    const GatherTask t = op.tasks.task(i);
    const Rows rows = op.tasks.chunks.chunk(t.slice, t.chunk);
    if (rows.count == 0) continue;
    bool ok = true;
    if (block.leader()) {
      const bool from_slot = t.kind == GatherTask::Kind::kSend || t.slice != op.rank;
      if (from_slot) ok = await_chunk(op, epoch, t.slice, t.chunk, tally);
      if (ok && t.kind == GatherTask::Kind::kSend) ok = send_chunk(op, epoch, t, rows, tally);
    }
    if (!block.all(ok)) return;
    if (t.kind == GatherTask::Kind::kCopy) copy_chunk(block, op, epoch, t, rows, tally);
  }
}

/// Where the tile's rows lie, and where they go.
MK_HD TileWork tile_work(const AllGatherGemmWork& op, uint32_t epoch, const GatherTile& tile) {
  const auto row = static_cast<uint32_t>(op.tiles.split.slice(tile.slice).begin) + tile.row;
  if (op.in_place(tile.slice)) return {kOwnRows, tile.row, row, tile.rows, tile.col};
  return {kFirstSlot + op.flags.slot_of(epoch), row, row, tile.rows, tile.col};
}

/// Tile i, once its rows are there.
MK_HD bool prepare_tile(const AllGatherGemmWork& op, uint32_t epoch, uint32_t i, TileWork* work,
                        Tally& tally) {
  const GatherTile tile = op.tiles.tile(i);
  *work = tile_work(op, epoch, tile);
  return tile.rows == 0 || op.in_place(tile.slice) ||
         await_chunk(op, epoch, tile.slice, tile.row / op.tasks.chunks.chunk_rows, tally);
}

/// Tells every peer that this rank is done with the slots of launches up to `epoch`. A launch that
/// broke off says nothing: what was sent to it may still be on its way, out of the peers' slots.
MK_HD bool give_credit(const AllGatherGemmWork& op, uint32_t epoch) {
  if (broken(op)) return false;
  return for_each_peer(
      op, [&](uint32_t peer) { return raise_flag(op, peer, op.flags.credit(op.rank), epoch); });
}

/// The last block to leave gives the slot back, resets the tickets and advances the epoch.
/// Where copy engines push, it waits for the peers' credit first: then they have all that was
/// pushed to them, so the engines have read the epoch, and the next launch's may overwrite.
MK_HD void end_launch(const AllGatherGemmWork& op, uint32_t epoch) {
  if (!op.lends_slot) give_credit(op, epoch);
  Tally tally;
  tally.local_bytes = op.engine_bytes;
  if (op.ends_together) await_credit(op, epoch, tally);
  add_tally(op.state, tally);
  end_epoch(op, epoch + 1);
}

/// One block of one launch, from start to end.
template <class Block>
MK_HD void all_gather_gemm(Block& block, const AllGatherGemmWork& op) {
  const uint32_t role = block.broadcast(block.leader() ? draw(&op.state->role_ticket) : 0);
  // That this launch runs says that the caller is done with what the last one lent.
  if (op.lends_slot && role == 0 && block.leader()) give_credit(op, running_epoch(op) - 1);
  if (op.split.communicates(role)) {
    Tally tally;
    communicate(block, op, running_epoch(op), tally);
    if (block.leader()) add_tally(op.state, tally);
  }
  const auto feed = [&] {
    Tally tally;
    const uint32_t epoch = running_epoch(op);
    const auto prepare = [&](uint32_t i, TileWork* work) {
      return prepare_tile(op, epoch, i, work, tally);
    };
    feed_tiles(block, op.state, op.tiles.size(), prepare, tally);
    add_tally(op.state, tally);
  };
  block.split(feed, [&] { multiply_tiles(block); });
  leave_launch(block, op, [&](uint32_t epoch) { end_launch(op, epoch); });
}

}  // namespace mkernel
