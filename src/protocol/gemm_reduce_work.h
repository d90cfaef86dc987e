// A launch of GEMM+ReduceScatter or GEMM+AllReduce: what its roles need, and where its tiles go.
#pragma once
#include <cstdint>

#include "protocol/launch_work.h"
#include "protocol/reduce_layout.h"
#include "protocol/tile_output.h"
#include "protocol/tile_work.h"
#include "schedule/reduce_tile_order.h"

namespace mkernel {

struct GemmReduceWork : LaunchWork {
  ReduceTileOrder tiles;
  ReduceLayout layout;
  TileSums sums;
  uint32_t first_epoch = 0;  // of the plan: what counters start from
  uint32_t pad_rows = 1;     // a partial sum in work space is padded to multiples of these
  uint32_t pad_cols = 1;

  // Operands of this launch besides those of every launch.
  const char* bias = nullptr;      // null: none
  const char* residual = nullptr;  // null: none

  /// Local peers compute for this rank what it collects: its own slice, and on other nodes those of
  /// its rail.
  MK_HD bool collects(uint32_t slice) const { return cluster.gpu_of(slice) == gpu; }
  /// Finished tiles go to the other ranks.
  MK_HD bool spreads() const { return layout.gathers && cluster.world() > 1; }
  MK_HD uint32_t ring_of(const ReduceTile& tile) const { return tile.round % layout.depth; }
  /// The value that flags have when the slots of the tile's round were last used and are free.
  MK_HD uint32_t credit_needed(uint32_t epoch, const ReduceTile& tile) const {
    return epoch + tile.round - tiles.epochs_since_use(tile.slice, tile.round);
  }
  MK_HD uint32_t partial_tile_bytes(const ReduceTile& tile) const {
    return round_up(tile.rows, pad_rows) * round_up(tile.cols, pad_cols) * sums.partial_element();
  }
  MK_HD uint32_t result_tile_bytes(const ReduceTile& tile) const {
    return tile.rows * sums.result_pitch(tile.cols);
  }
  /// The first row of C that the tile computes: of all rows, or of the own ones.
  MK_HD uint64_t c_row(const ReduceTile& tile) const {
    return layout.gathers ? tiles.split.begin(tile.slice) + tile.row : tile.row;
  }
  MK_HD char* c_at(const ReduceTile& tile) const {
    return c + c_row(tile) * sums.c_pitch + uint64_t{tile.col} * sums.result_element();
  }
};

/// The operands of tile number `ticket`.
MK_HD TileWork reduce_tile_work(const GemmReduceWork& op, uint32_t ticket) {
  const ReduceTile tile = op.tiles.tile(ticket);
  const uint32_t row = op.tiles.split.begin(tile.slice) + tile.row;
  return {kOwnRows, row, 0, tile.rows, tile.col, ticket};
}

/// Writes down what is to be done with a tile's sums. Into `out` field by field, since a GPU has it
/// in shared memory, and few registers for who writes it.
MK_HD void describe_output(const GemmReduceWork& op, const ReduceTile& tile, TileOutput& out) {
  const uint32_t slot = op.tiles.slot_of(tile), gpu = op.gpu, node = op.node;
  const uint32_t owner_node = op.cluster.node_of(tile.slice);
  out.rows = tile.rows;
  out.cols = tile.cols;
  if (!op.collects(tile.slice)) {
    const uint32_t collector = op.tiles.collector(node, tile.slice);
    out.kind = TileOutput::Kind::kPartial;
    out.to = op.slot_at(
        collector, op.layout.partial_offset(gpu, op.cluster.gpu_of(collector), owner_node, slot));
    return;
  }
  // Where the first other rank's partial sum lies: number 0 among the others.
  out.partials = op.own_slots + op.layout.partial_offset(0, gpu == 0 ? 1 : gpu, owner_node, slot);
  if (owner_node != node) {
    out.kind = TileOutput::Kind::kNodeSum;
    out.to = op.own_slots + op.layout.sum_out_offset(owner_node, node, slot);
    return;
  }
  out.kind = TileOutput::Kind::kResult;
  out.sums = op.own_slots + op.layout.sum_in_offset(0, node == 0 ? 1 : node, slot);
  out.c = op.c_at(tile);
  const uint64_t col_bytes = uint64_t{tile.col} * kElementBytes;
  out.bias = op.bias == nullptr ? nullptr : op.bias + col_bytes;
  out.residual = op.residual == nullptr
                     ? nullptr
                     : op.residual + uint64_t{tile.row} * op.sums.residual_pitch + col_bytes;
  out.copies = op.spreads();
  out.result_offset = op.layout.result_offset(tile.slice, slot);
}

/// Whether every rank has begun this launch, as far as this rank can see: each one of the node has
/// sent it a partial sum, and each other node a sum, for which all its ranks were needed. Any rank
/// that is late holds up all others sooner or later, and not only those that wait for it.
MK_HD bool all_begun(const GemmReduceWork& op, uint32_t epoch) {
  const ReduceLayout& l = op.layout;
  return for_each_local_peer(op,
                             [&](uint32_t peer) {
                               const uint32_t from = op.cluster.gpu_of(peer);
                               return any_reached(op, l.partial(from, op.gpu, 0, 0),
                                                  op.cluster.nodes * l.slots, epoch);
                             }) &&
         for_each_rail_peer(op, [&](uint32_t peer) {
           return any_reached(op, l.sum(op.cluster.node_of(peer), op.node, 0), l.slots, epoch);
         });
}

/// Waits, in launch `epoch`, until `flag` of this rank has reached `want`.
MK_HD bool await_flag(const GemmReduceWork& op, uint32_t epoch, uint32_t flag, uint32_t want,
                      const WaitSite& site, Tally& tally) {
  return await_flag(op, flag, want, site, tally, [&] { return all_begun(op, epoch); });
}

/// Counts one more tile of a round; true for the last one, which sets the counter back.
MK_HD bool count_tile(const GemmReduceWork& op, uint32_t counter, const ReduceTile& tile) {
  uint32_t* word = op.flag(op.rank, counter);
  const uint32_t count = add_acq_rel<Scope::kGpu>(word, 1u) + 1 - op.first_epoch;
  if (count != op.tiles.tiles_in_round(tile.slice, tile.round)) return false;
  store_relaxed<Scope::kGpu>(word, op.first_epoch);
  return true;
}

}  // namespace mkernel
