#include "schedule/gather_tile_order.h"

#include <gtest/gtest.h>

#include <set>
#include <utility>
#include <vector>

namespace mkernel {
namespace {

TEST(GatherTileOrder, CoversEveryElementOnce) {
  for (const ClusterShape cluster : {ClusterShape{1, 1}, {1, 2}, {3, 2}, {2, 4}})
    for (const uint32_t rows : {0u, 1u, 5u, 37u, 70u})
      for (const uint32_t cols : {1u, 8u, 21u})
        for (const uint32_t band : {1u, 2u, 3u, 100u}) {
          const RowSplit split{rows, cluster.world()};
          const GatherTileOrder order{cluster, split, cluster.world() - 1, cols, 4, 8, band};
          std::vector<int> seen(size_t{rows} * cols, 0);
          for (uint32_t i = 0; i < order.size(); ++i) {
            const GatherTile t = order.tile(i);
            for (uint32_t r = 0; r < t.rows; ++r)
              for (uint32_t c = t.col; c < std::min(cols, t.col + 8); ++c)
                ++seen[(split.slice(t.slice).begin + t.row + r) * cols + c];
          }
          for (const int count : seen) ASSERT_EQ(count, 1);
        }
}

TEST(GatherTileOrder, StartsWithOwnRowsThenTheNodeThenTheOthers) {
  const ClusterShape cluster{3, 2};
  const GatherTileOrder order{cluster, {60, 6}, 3, 8, 4, 8, 1};
  std::vector<uint32_t> slices;
  for (uint32_t q = 0; q < 6; ++q) slices.push_back(order.slice_at(q));
  EXPECT_EQ(slices, (std::vector<uint32_t>{3, 2, 5, 4, 1, 0}));
}

TEST(GatherTileOrder, TilesDoNotCrossSlices) {
  const ClusterShape cluster{1, 3};
  const RowSplit split{31, 3};
  const GatherTileOrder order{cluster, split, 0, 8, 4, 8, 2};
  for (uint32_t i = 0; i < order.size(); ++i) {
    const GatherTile t = order.tile(i);
    if (t.rows != 0) {
      EXPECT_LE(t.row + t.rows, split.slice(t.slice).count);
    }
  }
}

}  // namespace
}  // namespace mkernel
