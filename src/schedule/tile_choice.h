// How wide the output tiles of a product should be. Pure.
//
// Wide tiles compute faster; narrow ones leave fewer blocks idle in the last wave. Waiting for rows
// is not weighed: it is the same for all widths, because all have the same rows.
#pragma once
#include <cstdint>
#include <span>

#include "core/maths.h"
#include "schedule/row_chunks.h"

namespace mkernel {

/// A main-loop step of the widest tile, the unit of time. Costs are whole numbers, so that equal
/// times are equal.
inline constexpr uint32_t kStepCost = 100;

/// A step of a tile of half that width: more than half, because it needs just as many rows of A.
/// For each product it loads 4/3 of the bytes, and reads 6/5 of them from shared memory. How much
/// that costs is an estimate, not measured: `gemm_core bench` does, where both take one wave.
inline constexpr uint32_t kHalfWidthStepCost = 55;

/// A width of output tiles that a machine offers.
struct TileWidth {
  uint32_t cols;
  uint32_t step_cost;  // in 1 / kStepCost
};

/// A product whose rows lie in slices that no tile crosses.
struct TiledProduct {
  RowSplit split;
  uint32_t cols;
  uint32_t tile_m;
  uint32_t blocks;  // that compute; those that communicate do so first, and then compute

  /// Tile rows over all slices, of which the first ones may be a row longer than the others.
  constexpr uint64_t row_tiles() const {
    const uint64_t longer = split.rows % split.ranks;
    const uint64_t most = ceil_div<uint64_t>(split.largest(), tile_m);
    return longer * most +
           (split.ranks - longer) * ceil_div<uint64_t>(split.rows / split.ranks, tile_m);
  }
};

/// What a product comes to with tiles of one width.
struct TileEstimate {
  uint32_t tile_n;
  uint64_t tiles;
  uint64_t waves;  // tiles one after the other, at the block that computes the most
  uint64_t time;   // for each step that a tile takes, in 1 / kStepCost
};

constexpr TileEstimate estimate_tiles(const TiledProduct& p, const TileWidth& width) {
  const uint64_t tiles = p.row_tiles() * ceil_div(p.cols, width.cols);
  const uint64_t waves = ceil_div<uint64_t>(tiles, p.blocks);
  return {width.cols, tiles, waves, waves * width.step_cost};
}

/// The width that takes the least time, of equal ones the first. `widths` has the widest first.
constexpr uint32_t choose_tile_n(const TiledProduct& p, std::span<const TileWidth> widths) {
  TileEstimate best = estimate_tiles(p, widths[0]);
  for (const TileWidth& width : widths.subspan(1)) {
    const TileEstimate estimate = estimate_tiles(p, width);
    if (estimate.time < best.time) best = estimate;
  }
  return best.tile_n;
}

}  // namespace mkernel
