// How a grid of tiles is walked: in bands of tile rows, each column by column, so that a band's
// rows of A and one column of B stay in L2. Pure.
#pragma once
#include <cstdint>

#include "core/maths.h"
#include "core/target.h"

namespace mkernel {

/// A place in a grid of tiles, counted in tiles.
struct GridPlace {
  uint32_t row;
  uint32_t col;
};

/// The i-th place of a grid of row_tiles x col_tiles walked in bands of `band` tile rows.
MK_HD constexpr GridPlace place_in_bands(uint32_t i, uint32_t row_tiles, uint32_t col_tiles,
                                         uint32_t band) {
  const uint32_t band_begin = i / (band * col_tiles) * band;
  const uint32_t band_rows = smaller(band, row_tiles - band_begin);
  const uint32_t in_band = i - band_begin * col_tiles;
  return {band_begin + in_band % band_rows, in_band / band_rows};
}

}  // namespace mkernel
