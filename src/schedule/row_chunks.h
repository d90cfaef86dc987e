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

/// The same, for less than 2^32 rows, and so that a device need not divide to find a slice.
struct FastRowSplit {
  uint32_t rows = 0;
  uint32_t base = 0;  // rows of every slice
  uint32_t more = 0;  // slices that have one more

  FastRowSplit() = default;
  explicit constexpr FastRowSplit(const RowSplit& split)
      : rows(static_cast<uint32_t>(split.rows)),
        base(static_cast<uint32_t>(split.rows / split.ranks)),
        more(static_cast<uint32_t>(split.rows % split.ranks)) {}

  MK_HD constexpr uint32_t begin(uint32_t rank) const { return rank * base + smaller(rank, more); }
  MK_HD constexpr uint32_t count(uint32_t rank) const { return base + (rank < more ? 1 : 0); }
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
