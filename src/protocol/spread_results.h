// How the finished tiles of GEMM+AllReduce reach every rank: the owner's epilogue writes them to
// the ranks of its node, and the network to its rail peers, who forward them inside their nodes.
// Every rank brings what it got from work space to its C.
//
// A Team is what stands for some threads of a block, beside those that compute; it provides
// leader(), sync(), all(), broadcast() and copy_rows() as a Block does (all_gather_gemm.h).
#pragma once
#include <cstdint>

#include "protocol/gemm_reduce_work.h"

namespace mkernel {

/// The i-th tile that this rank gets: round by round, in each first the slices of the own node,
/// then node by node the others, beginning with the one to forward.
MK_HD ReduceTile spread_tile(const GemmReduceWork& op, uint32_t i) {
  const uint32_t round_tiles = op.tiles.round_tiles, others = op.cluster.world() - 1;
  const uint32_t in_rounds = i / round_tiles, q = in_rounds % others + 1;
  const uint32_t on_rail = op.cluster.rail_peer(op.rank, q / op.cluster.gpus);
  const uint32_t slice = op.cluster.local_peer(on_rail, q % op.cluster.gpus);
  return op.tiles.tile_of(slice, in_rounds / others, i % round_tiles);
}
MK_HD uint32_t num_spread_tiles(const GemmReduceWork& op) {
  return op.tiles.num_rounds * (op.cluster.world() - 1) * op.tiles.round_tiles;
}

/// True if this rank forwards a slice inside its node: it gets it by network.
MK_HD bool forwards(const GemmReduceWork& op, uint32_t slice) {
  return slice != op.rank && op.collects(slice);
}

/// Waits until the local peers have read what the tile's slot at them held before.
MK_HD bool await_local_landings(const GemmReduceWork& op, uint32_t epoch, const ReduceTile& tile,
                                Tally& tally) {
  return for_each_local_peer(op, [&](uint32_t peer) {
    const uint32_t flag = op.layout.landed(op.cluster.gpu_of(peer), op.gpu,
                                           op.cluster.node_of(tile.slice), op.ring_of(tile));
    return await_flag(op, epoch, flag, op.credit_needed(epoch, tile),
                      {Place::kResultSlotFree, peer, tile.slice}, tally);
  });
}

MK_HD bool await_rail_landings(const GemmReduceWork& op, uint32_t epoch, const ReduceTile& tile,
                               Tally& tally) {
  return for_each_rail_peer(op, [&](uint32_t peer) {
    const uint32_t flag =
        op.layout.landed_rail(op.cluster.node_of(peer), op.node, op.ring_of(tile));
    return await_flag(op, epoch, flag, op.credit_needed(epoch, tile),
                      {Place::kResultSlotFree, peer, tile.slice}, tally);
  });
}

/// Tells the local peers that a finished tile is in their work space.
MK_HD void tell_local_peers(const GemmReduceWork& op, uint32_t epoch, const ReduceTile& tile,
                            Tally& tally) {
  const uint32_t flag = op.layout.result(tile.slice, op.tiles.slot_of(tile));
  for_each_local_peer(op, [&](uint32_t peer) {
    tally.local_bytes += op.result_tile_bytes(tile);
    store_release<Scope::kSys>(op.flag(peer, flag), epoch + tile.round);
    return true;
  });
}

/// Sends an own finished tile to the rail peers.
MK_HD bool send_result(const GemmReduceWork& op, uint32_t epoch, const ReduceTile& tile,
                       Tally& tally) {
  const uint32_t slot = op.tiles.slot_of(tile), bytes = op.result_tile_bytes(tile);
  const uint64_t address = op.network_address + op.layout.result_offset(tile.slice, slot);
  return for_each_rail_peer(op, [&](uint32_t peer) {
    tally.network_bytes += bytes;
    return op.queue.push({address, address, bytes, epoch + tile.round,
                          op.layout.result(tile.slice, slot), static_cast<uint16_t>(peer)},
                         op.dog);
  });
}

/// Waits for a finished tile, and until it may be forwarded.
MK_HD bool await_result(const GemmReduceWork& op, uint32_t epoch, const ReduceTile& tile,
                        Tally& tally) {
  const bool from_owner = forwards(op, tile.slice);
  const uint32_t sender = from_owner ? tile.slice : op.tiles.collector(op.node, tile.slice);
  return await_flag(op, epoch, op.layout.result(tile.slice, op.tiles.slot_of(tile)),
                    epoch + tile.round, {Place::kResultArrived, sender, tile.slice}, tally) &&
         (!from_owner || await_local_landings(op, epoch, tile, tally));
}

/// Copies a finished tile to C, and to the local peers if it is to be forwarded.
template <class Team>
MK_HD void copy_result(Team& team, const GemmReduceWork& op, const ReduceTile& tile) {
  const uint64_t offset = op.layout.result_offset(tile.slice, op.tiles.slot_of(tile));
  const char* from = op.own_slots + offset;
  team.copy_rows({op.c_at(tile), op.sums.c_pitch, from, op.sums.result_pitch(tile.cols), tile.rows,
                  uint64_t{tile.cols} * op.sums.result_element()});
  if (!forwards(op, tile.slice)) return;
  const uint64_t bytes = op.result_tile_bytes(tile);
  for_each_local_peer(op, [&](uint32_t peer) {
    team.copy_rows({op.slot_at(peer, offset), bytes, from, bytes, 1, bytes});
    return true;
  });
}

/// Tells who wrote the tiles of a round and slice into this rank's work space that all were read.
MK_HD bool give_landing_credit(const GemmReduceWork& op, uint32_t epoch, const ReduceTile& tile) {
  const uint32_t owner = tile.slice, owner_node = op.cluster.node_of(owner);
  const uint32_t ring = op.ring_of(tile), value = epoch + tile.round;
  if (forwards(op, owner))
    return raise_flag(op, owner, op.layout.landed_rail(op.node, owner_node, ring), value);
  const uint32_t sender = op.tiles.collector(op.node, owner);
  return raise_flag(op, sender,
                    op.layout.landed(op.gpu, op.cluster.gpu_of(sender), owner_node, ring), value);
}

/// A team: takes finished tiles, in order, until there are none.
template <class Team>
MK_HD void spread_results(Team& team, const GemmReduceWork& op, uint32_t epoch) {
  const uint32_t num_tiles = num_spread_tiles(op);
  for (;;) {
    const uint32_t i = team.broadcast(team.leader() ? draw(&op.state->task_ticket) : 0);
    if (i >= num_tiles) return;
    const ReduceTile tile = spread_tile(op, i);
    if (tile.rows == 0) continue;
    Tally tally;
    if (!team.all(!team.leader() || await_result(op, epoch, tile, tally))) return;
    copy_result(team, op, tile);
    team.sync();
    if (!team.leader()) continue;
    if (forwards(op, tile.slice)) tell_local_peers(op, epoch, tile, tally);
    const uint32_t counter = op.layout.landings(tile.slice, op.ring_of(tile));
    if (count_tile(op, counter, tile) && !give_landing_credit(op, epoch, tile)) mark_broken(op);
    add_tally(op.state, tally);
  }
}

}  // namespace mkernel
