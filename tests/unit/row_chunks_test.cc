#include "schedule/row_chunks.h"

#include <gtest/gtest.h>

namespace mkernel {
namespace {

TEST(RowSplit, CoversEveryRowOnceInRankOrder) {
  for (const uint64_t rows : {0u, 1u, 3u, 7u, 8u, 9u, 1000u})
    for (const uint32_t ranks : {1u, 2u, 3u, 8u, 16u}) {
      uint64_t next = 0;
      for (uint32_t r = 0; r < ranks; ++r) {
        const Rows s = RowSplit{rows, ranks}.slice(r);
        EXPECT_EQ(s.begin, next);
        EXPECT_EQ(s.count, rows / ranks + (r < rows % ranks ? 1 : 0));
        next += s.count;
      }
      EXPECT_EQ(next, rows);
    }
}

TEST(RowSplit, IsRightBeyond32Bits) {
  const uint64_t rows = (uint64_t{1} << 32) + 1;
  const Rows last = RowSplit{rows, 2}.slice(1);
  EXPECT_EQ(last.begin, (uint64_t{1} << 31) + 1);
  EXPECT_EQ(last.begin + last.count, rows);
}

TEST(ChunkMap, LastChunkOfARaggedSliceIsShort) {
  const ChunkMap map{{10, 1}, 4};
  EXPECT_EQ(map.max_chunks(), 3u);
  EXPECT_EQ(map.chunk(0, 2).begin, 8u);
  EXPECT_EQ(map.chunk(0, 2).count, 2u);
}

TEST(ChunkMap, ChunksBeyondAShorterSliceAreEmpty) {
  const ChunkMap map{{9, 2}, 4};  // 5 rows and 4 rows
  EXPECT_EQ(map.max_chunks(), 2u);
  EXPECT_EQ(map.chunk(0, 1).count, 1u);
  EXPECT_EQ(map.chunk(1, 1).count, 0u);
}

}  // namespace
}  // namespace mkernel
