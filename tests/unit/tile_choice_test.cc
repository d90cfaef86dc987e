#include "schedule/tile_choice.h"

#include <gtest/gtest.h>

#include <array>

#include "schedule/gather_tile_order.h"

namespace mkernel {
namespace {

/// What a GPU offers, and the blocks of one rank that has an H200 to itself.
constexpr std::array<TileWidth, 2> kWidths = {{{256, kStepCost}, {128, kHalfWidthStepCost}}};
constexpr uint32_t kBlocks = 132;

constexpr TiledProduct product_of(uint64_t m, uint32_t n, uint32_t ranks,
                                  uint32_t blocks = kBlocks) {
  return {{m, ranks}, n, 128, blocks};
}

TEST(TileChoice, CountsTilesAndWavesOverAllSlices) {
  const TileEstimate e = estimate_tiles(product_of(8192, 4096, 2), kWidths[0]);
  EXPECT_EQ(e.tile_n, 256u);
  EXPECT_EQ(e.tiles, 1024u);
  EXPECT_EQ(e.waves, 8u);  // 7.75
  EXPECT_EQ(e.time, 8 * kStepCost);
  EXPECT_EQ(estimate_tiles(product_of(132 * 128, 256, 1), kWidths[0]).waves, 1u);
  EXPECT_EQ(estimate_tiles(product_of(132 * 128 + 1, 256, 1), kWidths[0]).waves, 2u);
  EXPECT_EQ(estimate_tiles(product_of(132 * 128, 257, 1), kWidths[0]).waves, 2u);
}

TEST(TileChoice, IsNarrowWhereWideTilesLeaveHalfOfTheBlocksIdle) {
  const TiledProduct few = product_of(2048, 1024, 2);
  EXPECT_EQ(estimate_tiles(few, kWidths[0]).tiles, 64u);
  EXPECT_EQ(estimate_tiles(few, kWidths[1]).tiles, 128u);
  EXPECT_EQ(choose_tile_n(few, kWidths), 128u);
}

TEST(TileChoice, IsWideWhereThereAreManyTiles) {
  EXPECT_EQ(choose_tile_n(product_of(4096, 2048, 2), kWidths), 256u);  // 2 waves, 4 * 0.55
  EXPECT_EQ(choose_tile_n(product_of(8192, 4096, 2), kWidths), 256u);
  EXPECT_EQ(choose_tile_n(product_of(uint64_t{1} << 30, 1u << 30, 2), kWidths), 256u);
}

TEST(TileChoice, IsNarrowWhereTheLastWaveOfWideOnesIsShort) {
  // 140 wide tiles are 2 waves, 280 narrow ones 3.
  EXPECT_EQ(choose_tile_n(product_of(128 * 140, 256, 1), kWidths), 128u);
  EXPECT_EQ(choose_tile_n(product_of(128 * 132, 256, 1), kWidths), 256u);
}

TEST(TileChoice, IsNarrowWhereCHasNoMoreColumns) {
  EXPECT_EQ(choose_tile_n(product_of(100'000, 128, 4), kWidths), 128u);
  EXPECT_EQ(choose_tile_n(product_of(100'000, 1, 4), kWidths), 128u);
}

TEST(TileChoice, OfEqualTimesIsTheWidest) {
  EXPECT_EQ(choose_tile_n(product_of(0, 4096, 2), kWidths), 256u);
  constexpr std::array<TileWidth, 2> kNoLoss = {{{256, kStepCost}, {128, kStepCost / 2}}};
  EXPECT_EQ(choose_tile_n(product_of(8192, 8192, 2, 64), kNoLoss), 256u);
}

TEST(TileChoice, CountsTheTilesOfTheOrderThatHoldRows) {
  for (const ClusterShape cluster : {ClusterShape{1, 1}, {1, 3}, {3, 2}})
    for (const uint32_t rows : {0u, 1u, 5u, 47u, 48u, 49u, 96u, 200u})
      for (const uint32_t cols : {1u, 8u, 21u}) {
        const RowSplit split{rows, cluster.world()};
        const GatherTileOrder order{cluster, split, 0, cols, 8, 4, 3};
        uint64_t tiles = 0;
        for (uint32_t i = 0; i < order.size(); ++i) tiles += order.tile(i).rows != 0 ? 1 : 0;
        EXPECT_EQ(estimate_tiles({split, cols, 8, 5}, {4, kStepCost}).tiles, tiles)
            << rows << " rows, " << cols << " columns, " << cluster.world() << " ranks";
      }
}

}  // namespace
}  // namespace mkernel
