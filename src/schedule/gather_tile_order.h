// The order in which a rank computes the tiles of C = gathered A * B: in order of arrival of A's
// rows. Pure.
#pragma once
#include <cstdint>

#include "core/maths.h"
#include "core/target.h"
#include "schedule/cluster.h"
#include "schedule/row_chunks.h"
#include "schedule/tile_bands.h"

namespace mkernel {

/// One tile: rows [row, row + rows) of a slice, columns from `col`.
struct GatherTile {
  uint32_t slice;
  uint32_t row;   // within the slice
  uint32_t rows;  // 0: the slice is shorter than the largest one, nothing to do here
  uint32_t col;
};

/// Own slice first, then the node's, then node by node the remote ones, each in the order in which
/// GatherTasks make them arrive. Tiles never cross slices.
struct GatherTileOrder {
  ClusterShape cluster;
  RowSplit split;
  uint32_t rank = 0;
  uint32_t cols = 1;
  uint32_t tile_m = 1, tile_n = 1;
  uint32_t band = 1;

  MK_HD constexpr uint32_t row_tiles() const {
    return static_cast<uint32_t>(ceil_div<uint64_t>(split.largest(), tile_m));
  }
  MK_HD constexpr uint32_t col_tiles() const { return ceil_div(cols, tile_n); }
  MK_HD constexpr uint32_t tiles_per_slice() const { return row_tiles() * col_tiles(); }
  MK_HD constexpr uint32_t size() const { return tiles_per_slice() * cluster.world(); }

  /// The q-th slice to be used.
  MK_HD constexpr uint32_t slice_at(uint32_t q) const {
    const uint32_t on_rail = cluster.rail_peer(rank, q / cluster.gpus);
    return cluster.local_peer(on_rail, q % cluster.gpus);
  }

  MK_HD constexpr GatherTile tile(uint32_t i) const {
    const uint32_t slice = slice_at(i / tiles_per_slice()), in = i % tiles_per_slice();
    const GridPlace at = place_in_bands(in, row_tiles(), col_tiles(), band);
    const uint64_t row = uint64_t{at.row} * tile_m;
    const uint64_t count = split.slice(slice).count;
    const uint64_t rows = row < count ? smaller<uint64_t>(tile_m, count - row) : 0;
    return {slice, static_cast<uint32_t>(row), static_cast<uint32_t>(rows), at.col * tile_n};
  }
};

}  // namespace mkernel
