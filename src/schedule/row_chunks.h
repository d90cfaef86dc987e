// How the rows of a matrix are split over ranks, and a rank's rows into chunks.
#pragma once
#include <cstdint>

#include "core/maths.h"
#include "core/target.h"

namespace mkernel {

/// A run of rows.
struct Rows {
  uint64_t begin;
  uint64_t count;
};

/// `rows` split over `ranks` in rank order; the first (rows mod ranks) ranks have one more.
struct RowSplit {
  uint64_t rows = 0;
  uint32_t ranks = 1;

  MK_HD constexpr Rows slice(uint32_t rank) const {
    const uint64_t base = rows / ranks, more = rows % ranks;
    return {rank * base + smaller<uint64_t>(rank, more), base + (rank < more ? 1 : 0)};
  }
  MK_HD constexpr uint64_t largest() const { return ceil_div<uint64_t>(rows, ranks); }
};

/// A slice cut into chunks of `chunk_rows` rows, the last one short: the unit of sending.
struct ChunkMap {
  RowSplit split;
  uint32_t chunk_rows = 1;

  /// Chunks of the largest slice: every rank's flags are laid out for that many.
  MK_HD constexpr uint32_t max_chunks() const {
    return static_cast<uint32_t>(ceil_div<uint64_t>(split.largest(), chunk_rows));
  }
  /// Rows of a chunk counted from the slice's begin; count is 0 for a chunk that does not exist.
  MK_HD constexpr Rows chunk(uint32_t rank, uint32_t chunk_idx) const {
    const uint64_t begin = uint64_t{chunk_idx} * chunk_rows, end = split.slice(rank).count;
    return {begin, begin < end ? smaller<uint64_t>(chunk_rows, end - begin) : 0};
  }
};

}  // namespace mkernel
