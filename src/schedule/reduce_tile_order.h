// The order in which a rank computes its partial sums of C = sum over ranks of A * B, and in which
// slots of work space they travel. Pure.
//
// The rows of a slice belong to one rank, its owner. What the ranks of a node compute for a slice
// comes together at the node's *collector*: the rank on the owner's rail, which on the owner's node
// is the owner itself. All ranks walk the slices in *rounds* of as many tiles of each.
#pragma once
#include <cstdint>

#include "core/maths.h"
#include "core/target.h"
#include "schedule/cluster.h"
#include "schedule/row_chunks.h"
#include "schedule/tile_bands.h"

namespace mkernel {

/// One tile: rows [row, row + rows) of a slice, columns [col, col + cols).
struct ReduceTile {
  uint32_t slice;
  uint32_t round;
  uint32_t place;  // within the round and slice
  uint32_t row;    // within the slice
  uint32_t rows;   // 0: the slice has fewer tiles than the largest, nothing to do here
  uint32_t col;
  uint32_t cols;
};

/// A round: the slices of the other nodes' owners, node by node, then those of the own node. Within
/// a node the slices that local peers collect come first, at any time another one on every rank,
/// and then the slice that this rank collects; so the own slice comes last of all, and what a tile
/// is added to was computed by the peers before, in the same round.
struct ReduceTileOrder {
  ClusterShape cluster;
  FastRowSplit split;
  uint32_t rank = 0;
  uint32_t cols = 1;
  uint32_t tile_m = 1, tile_n = 1;
  uint32_t band = 1;
  uint32_t round_tiles = 1;  // of each slice
  uint32_t depth = 1;        // rounds whose tiles have slots at the same time

  // What follows from the above: set by derive(), since divisions cost a device registers.
  uint32_t col_tiles = 1;
  uint32_t row_tiles_of[2] = {};  // of slices that are as short as any, and of longer ones
  uint32_t num_rounds = 0;
  /// By how much the epoch grows in a launch: one per round, and a multiple of the depth, so that
  /// slots are used in turns also from launch to launch.
  uint32_t epochs = 1;

  /// To be called once all fields above are set.
  constexpr void derive() {
    col_tiles = ceil_div(cols, tile_n);
    row_tiles_of[0] = ceil_div(split.base, tile_m);
    row_tiles_of[1] = ceil_div(split.base + 1, tile_m);
    num_rounds = rounds_of(0);
    epochs = round_up(num_rounds == 0 ? 1 : num_rounds, depth);
  }

  MK_HD constexpr uint32_t row_tiles(uint32_t slice) const {
    return row_tiles_of[slice < split.more ? 1 : 0];
  }
  MK_HD constexpr uint32_t tiles_of(uint32_t slice) const { return row_tiles(slice) * col_tiles; }
  /// Rounds in which a slice has tiles; the first slice has most.
  MK_HD constexpr uint32_t rounds_of(uint32_t slice) const {
    return ceil_div(tiles_of(slice), round_tiles);
  }
  MK_HD constexpr uint32_t tiles_in_round(uint32_t slice, uint32_t round) const {
    const uint32_t begin = round * round_tiles, all = tiles_of(slice);
    return begin < all ? smaller(round_tiles, all - begin) : 0;
  }
  MK_HD constexpr uint32_t size() const { return num_rounds * cluster.world() * round_tiles; }

  /// The q-th slice of a round.
  MK_HD constexpr uint32_t slice_at(uint32_t q) const {
    const uint32_t on_rail = cluster.rail_peer(rank, q / cluster.gpus + 1);
    return cluster.local_peer(on_rail, q % cluster.gpus + 1);
  }
  /// The rank of `node` that collects a slice.
  MK_HD constexpr uint32_t collector(uint32_t node, uint32_t slice) const {
    return cluster.rank(node, cluster.gpu_of(slice));
  }

  MK_HD constexpr ReduceTile tile(uint32_t i) const {
    const uint32_t in_rounds = i / round_tiles;
    return tile_of(slice_at(in_rounds % cluster.world()), in_rounds / cluster.world(),
                   i % round_tiles);
  }
  MK_HD constexpr ReduceTile tile_of(uint32_t slice, uint32_t round, uint32_t place) const {
    if (place >= tiles_in_round(slice, round)) return {slice, round, place, 0, 0, 0, 0};
    const GridPlace at =
        place_in_bands(round * round_tiles + place, row_tiles(slice), col_tiles, band);
    const uint32_t row = at.row * tile_m, col = at.col * tile_n;
    return {slice,
            round,
            place,
            row,
            smaller(tile_m, split.count(slice) - row),
            col,
            smaller(tile_n, cols - col)};
  }

  MK_HD constexpr uint32_t num_slots() const { return depth * round_tiles; }
  MK_HD constexpr uint32_t slot_of(const ReduceTile& tile) const {
    return tile.round % depth * round_tiles + tile.place;
  }
  /// How many epochs ago the slots of a slice's round were last used; the launch before may have
  /// ended with rounds in which the slice had no tiles.
  MK_HD constexpr uint32_t epochs_since_use(uint32_t slice, uint32_t round) const {
    if (round >= depth) return depth;
    uint32_t earlier = round + epochs - depth;
    while (earlier >= rounds_of(slice)) earlier -= depth;
    return round + epochs - earlier;
  }
};

}  // namespace mkernel
