// GEMM+ReduceScatter and GEMM+AllReduce as one launch on one rank: who computes what for whom, who
// waits for which flag. Both machines run this code. Besides what tile_loops.h asks for, a Block
// provides
//   bool leader(), void sync()           as in all_gather_gemm.h
//   void split(feed, multiply, deliver, spread)  runs feed() on the leader, deliver() on one other
//                                        thread, spread(team) on some more (spread_results.h), and
//                                        multiply() on the rest
//   bool next(uint32_t* ticket)          within deliver(): the ticket of the tile that is fed next,
//                                        in the order of feed(); false after stop()
//   TileOutput& output()                 within deliver(): what will be done with the tile's sums,
//                                        to be filled in before
//   void admit()                         multiply() may store them
//   void await_stored()                  within deliver(): until it has
#pragma once
#include <cstdint>

#include "protocol/gemm_reduce_work.h"
#include "protocol/spread_results.h"
#include "protocol/tile_loops.h"

namespace mkernel {

/// Waits for what a collected tile is added to: the partial sums of the node's other ranks.
MK_HD bool await_partials(const GemmReduceWork& op, uint32_t epoch, const ReduceTile& tile,
                          Tally& tally) {
  const uint32_t node = op.cluster.node_of(tile.slice), slot = op.tiles.slot_of(tile);
  return for_each_local_peer(op, [&](uint32_t peer) {
    const uint32_t flag = op.layout.partial(op.cluster.gpu_of(peer), op.gpu, node, slot);
    return await_flag(op, epoch, flag, epoch + tile.round,
                      {Place::kPartialArrived, peer, tile.slice}, tally);
  });
}

/// Waits for the sums of the other nodes for a tile of the own slice.
MK_HD bool await_node_sums(const GemmReduceWork& op, uint32_t epoch, const ReduceTile& tile,
                           Tally& tally) {
  return for_each_rail_peer(op, [&](uint32_t peer) {
    const uint32_t flag = op.layout.sum(op.cluster.node_of(peer), op.node, op.tiles.slot_of(tile));
    return await_flag(op, epoch, flag, epoch + tile.round,
                      {Place::kNodeSumArrived, peer, tile.slice}, tally);
  });
}

/// Waits until a tile's sums may be stored: where they go is free, what they are added to is there.
MK_HD bool await_tile(const GemmReduceWork& op, uint32_t epoch, const ReduceTile& tile,
                      Tally& tally) {
  if (tile.slice != op.rank) {
    const uint32_t reader =
        op.collects(tile.slice) ? tile.slice : op.tiles.collector(op.node, tile.slice);
    const WaitSite site{Place::kSumSlotFree, reader, tile.slice};
    if (!await_flag(op, epoch, op.layout.credit(tile.slice, op.ring_of(tile)),
                    op.credit_needed(epoch, tile), site, tally))
      return false;
  }
  if (op.collects(tile.slice) && !await_partials(op, epoch, tile, tally)) return false;
  if (tile.slice != op.rank) return true;
  return await_node_sums(op, epoch, tile, tally) &&
         (!op.spreads() || (await_local_landings(op, epoch, tile, tally) &&
                            await_rail_landings(op, epoch, tile, tally)));
}

/// Tells all that sent something for the tile's round and slice that it was read.
MK_HD bool give_credit(const GemmReduceWork& op, uint32_t epoch, const ReduceTile& tile) {
  const uint32_t flag = op.layout.credit(tile.slice, op.ring_of(tile));
  const auto give = [&](uint32_t peer) { return raise_flag(op, peer, flag, epoch + tile.round); };
  return for_each_local_peer(op, give) && (tile.slice != op.rank || for_each_rail_peer(op, give));
}

/// Sends the node's sum of a tile to its owner.
MK_HD bool send_node_sum(const GemmReduceWork& op, uint32_t epoch, const ReduceTile& tile,
                         Tally& tally) {
  const uint32_t node = op.node, owner_node = op.cluster.node_of(tile.slice);
  const uint32_t slot = op.tiles.slot_of(tile), bytes = op.partial_tile_bytes(tile);
  tally.network_bytes += bytes;
  return op.queue.push({op.network_address + op.layout.sum_out_offset(owner_node, node, slot),
                        op.network_address + op.layout.sum_in_offset(node, owner_node, slot), bytes,
                        epoch + tile.round, op.layout.sum(node, owner_node, slot),
                        static_cast<uint16_t>(tile.slice)},
                       op.dog);
}

/// Tells who waits for a tile that its sums are stored.
MK_HD bool announce_tile(const GemmReduceWork& op, uint32_t epoch, const ReduceTile& tile,
                         Tally& tally) {
  if (!op.collects(tile.slice)) {
    const uint32_t collector = op.tiles.collector(op.node, tile.slice);
    const uint32_t flag = op.layout.partial(op.gpu, op.cluster.gpu_of(collector),
                                            op.cluster.node_of(tile.slice), op.tiles.slot_of(tile));
    tally.local_bytes += op.partial_tile_bytes(tile);
    store_release<Scope::kSys>(op.flag(collector, flag), epoch + tile.round);
    return true;
  }
  // Counted before it is sent: that it has arrived lets the slots, and so the counter, be used
  // anew.
  const uint32_t counter = op.layout.collected(op.cluster.node_of(tile.slice), op.ring_of(tile));
  if (count_tile(op, counter, tile) && !give_credit(op, epoch, tile)) return false;
  if (tile.slice != op.rank) return send_node_sum(op, epoch, tile, tally);
  if (!op.spreads()) return true;
  tell_local_peers(op, epoch, tile, tally);
  return send_result(op, epoch, tile, tally);
}

/// The delivering thread of a block: for every tile that is fed, in turn, waits until its sums may
/// be stored, and tells whom it concerns that they are. Once a wait was in vain, tiles are dropped:
/// their operands are loaded, so they have to pass.
template <class Block>
MK_HD void deliver_tiles(Block& block, const GemmReduceWork& op) {
  for (uint32_t ticket; block.next(&ticket);) {
    const ReduceTile tile = op.tiles.tile(ticket);
    // What is counted, and the epoch, are not kept for longer than a step: they cost registers.
    Tally waits;
    bool ok = !broken(op) && await_tile(op, running_epoch(op), tile, waits);
    add_tally(op.state, waits);
    TileOutput& out = block.output();
    out.kind = TileOutput::Kind::kNone;
    if (ok) describe_output(op, tile, out);
    block.admit();
    block.await_stored();
    Tally bytes;
    ok = ok && announce_tile(op, running_epoch(op), tile, bytes);
    add_tally(op.state, bytes);
    if (!ok) mark_broken(op);
  }
}

/// One block of one launch, from start to end.
template <class Block>
MK_HD void gemm_reduce(Block& block, const GemmReduceWork& op) {
  const auto feed = [&] {
    Tally tally;
    const auto prepare = [&](uint32_t i, TileWork* work) {
      *work = reduce_tile_work(op, i);
      return !broken(op);  // a feeder waits for nobody, so it has to look
    };
    feed_tiles(block, op.state, op.tiles.size(), prepare, tally);
    add_tally(op.state, tally);
  };
  const auto deliver = [&] { deliver_tiles(block, op); };
  const auto spread = [&](auto& team) {
    if (op.spreads()) spread_results(team, op, running_epoch(op));
  };
  block.split(
      feed, [&] { multiply_tiles(block); }, deliver, spread);
  leave_launch(block, op, [&](uint32_t epoch) { end_epoch(op, epoch + op.tiles.epochs); });
}

}  // namespace mkernel
