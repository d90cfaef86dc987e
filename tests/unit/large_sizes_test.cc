// Offsets, tiles, chunks and flags of matrices of thousands of gigabytes: every formula against
// 128-bit arithmetic, at and around 2^31 and 2^32. Nothing is allocated.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <random>
#include <vector>

#include "memory/heap_address.h"
#include "protocol/all_gather_gemm.h"
#include "schedule/all_gather_tasks.h"
#include "schedule/gather_tile_order.h"
#include "schedule/row_chunks.h"

namespace mkernel {
namespace {

__extension__ using Wide = unsigned __int128;

constexpr uint64_t kMostRows = uint64_t{1} << 30;  // what a plan accepts

/// Numbers at which 31, 32 or 33 bits end.
std::vector<uint64_t> around_word_sizes() {
  std::vector<uint64_t> numbers;
  for (const int bits : {30, 31, 32, 33})
    for (const int step : {-1, 0, 1})
      numbers.push_back((uint64_t{1} << bits) + static_cast<uint64_t>(int64_t{step}));
  return numbers;
}

TEST(LargeSizes, RowSplitIsExact) {
  for (const uint64_t rows : around_word_sizes())
    for (const uint32_t ranks : {1u, 2u, 3u, 7u, 8u, 16u, 65535u}) {
      const RowSplit split{rows, ranks};
      EXPECT_EQ(Wide{split.largest()}, (Wide{rows} + ranks - 1) / ranks);
      for (const uint32_t rank : {0u, 1u % ranks, ranks / 2, ranks - 1}) {
        const Rows slice = split.slice(rank);
        const Wide more = rows % ranks;
        EXPECT_EQ(Wide{slice.begin}, Wide{rows / ranks} * rank + std::min<Wide>(rank, more));
        EXPECT_EQ(Wide{slice.count}, Wide{rows / ranks} + (rank < more ? 1 : 0));
      }
      const Rows last = split.slice(ranks - 1);
      EXPECT_EQ(last.begin + last.count, rows);
    }
}

TEST(LargeSizes, ChunkMapIsExact) {
  for (const uint64_t rows : around_word_sizes())
    for (const uint32_t ranks : {1u, 3u, 8u})
      for (const uint32_t chunk_rows : {16u, 128u, 1u << 20, (1u << 31) - 1, 1u << 31, ~0u}) {
        const ChunkMap map{{rows, ranks}, chunk_rows};
        const Wide largest = (Wide{rows} + ranks - 1) / ranks;
        const Wide chunks = (largest + chunk_rows - 1) / chunk_rows;
        ASSERT_EQ(Wide{map.max_chunks()}, chunks);
        for (const uint32_t rank : {0u, ranks - 1}) {
          const Wide count = map.split.slice(rank).count;
          for (const uint32_t i : {0u, map.max_chunks() / 2, map.max_chunks() - 1}) {
            const Wide begin = Wide{i} * chunk_rows;
            const Wide left = begin < count ? count - begin : 0;
            const Rows chunk = map.chunk(rank, i);
            EXPECT_EQ(Wide{chunk.begin}, begin);
            EXPECT_EQ(Wide{chunk.count}, std::min<Wide>(left, chunk_rows));
          }
        }
      }
}

TEST(LargeSizes, TheLastChunksOfALargeSliceCoverItsEnd) {
  for (const uint64_t rows : around_word_sizes()) {
    const ChunkMap map{{rows, 3}, 4096};
    for (uint32_t rank = 0; rank < 3; ++rank) {
      uint64_t end = map.chunk(rank, map.max_chunks() - 3).begin;
      for (uint32_t i = map.max_chunks() - 3; i < map.max_chunks(); ++i) {
        const Rows chunk = map.chunk(rank, i);
        if (chunk.count == 0) continue;
        EXPECT_EQ(chunk.begin, end);
        end += chunk.count;
      }
      EXPECT_EQ(end, map.split.slice(rank).count);
    }
  }
}

/// What tile i of an order is, from the definition, in 128 bits.
struct WideTile {
  Wide slice, row, rows, col;
};

WideTile wide_tile(const GatherTileOrder& order, Wide i) {
  const Wide row_tiles = (Wide{order.split.largest()} + order.tile_m - 1) / order.tile_m;
  const Wide col_tiles = (Wide{order.cols} + order.tile_n - 1) / order.tile_n;
  const Wide in_slice = i % (row_tiles * col_tiles);
  const Wide band = in_slice / (order.band * col_tiles);
  const Wide band_rows = std::min<Wide>(order.band, row_tiles - band * order.band);
  const Wide in_band = in_slice - band * order.band * col_tiles;
  const auto q = static_cast<uint32_t>(i / (row_tiles * col_tiles));
  const uint32_t slice = order.slice_at(q);
  const Wide row = (band * order.band + in_band % band_rows) * order.tile_m;
  const Wide count = order.split.slice(slice).count;
  return {slice, row, row < count ? std::min<Wide>(order.tile_m, count - row) : 0,
          in_band / band_rows * order.tile_n};
}

/// Sizes near what a plan accepts, with fewer than 2^32 tiles.
std::vector<GatherTileOrder> large_orders() {
  std::vector<GatherTileOrder> orders;
  const auto most = static_cast<uint32_t>(kMostRows);
  for (const ClusterShape cluster : {ClusterShape{1, 1}, {1, 8}, {3, 2}})
    for (const uint32_t band : {1u, 4u, 16u})
      for (const uint64_t rows : {kMostRows, kMostRows - 1, kMostRows - 127, uint64_t{1} << 29}) {
        const RowSplit split{rows, cluster.world()};
        const uint32_t rank = cluster.world() - 1;
        orders.push_back({cluster, split, rank, 1, 16, 32, band});
        orders.push_back({cluster, split, rank, 1000, 16, 32, band});
        orders.push_back({cluster, split, rank, 65000, 128, 256, band});
        orders.push_back({cluster, {100, cluster.world()}, rank, most, 16, 32, band});
        orders.push_back({cluster, {100, cluster.world()}, rank, most - 1, 128, 256, band});
      }
  return orders;
}

TEST(LargeSizes, TileOrderIsExact) {
  std::mt19937 random(static_cast<uint32_t>(GTEST_FLAG_GET(random_seed)));
  for (const GatherTileOrder& order : large_orders()) {
    const Wide row_tiles = (Wide{order.split.largest()} + order.tile_m - 1) / order.tile_m;
    const Wide col_tiles = (Wide{order.cols} + order.tile_n - 1) / order.tile_n;
    const Wide size = row_tiles * col_tiles * order.cluster.world();
    ASSERT_LT(size, Wide{1} << 32) << "a case that a plan would refuse";
    ASSERT_EQ(Wide{order.size()}, size);
    std::vector<uint32_t> tiles = {0, order.size() / 2, order.size() - 1,
                                   order.tiles_per_slice() - 1};
    for (int n = 0; n < 200; ++n) tiles.push_back(static_cast<uint32_t>(random() % order.size()));
    for (const uint32_t i : tiles) {
      const GatherTile tile = order.tile(i);
      const WideTile wide = wide_tile(order, i);
      ASSERT_EQ(Wide{tile.slice}, wide.slice) << "tile " << i;
      ASSERT_EQ(Wide{tile.row}, wide.row) << "tile " << i;
      ASSERT_EQ(Wide{tile.rows}, wide.rows) << "tile " << i;
      ASSERT_EQ(Wide{tile.col}, wide.col) << "tile " << i;
      ASSERT_LT(tile.col, order.cols);
    }
  }
}

TEST(LargeSizes, TheLastTileOfEachSliceEndsAtItsLastElement) {
  for (const GatherTileOrder& order : large_orders()) {
    if (order.split.rows % order.cluster.world() != 0) continue;
    const GatherTile last = order.tile(order.size() - 1);
    EXPECT_EQ(last.row + last.rows, order.split.largest());
    EXPECT_GE(uint64_t{last.col} + order.tile_n, order.cols);
  }
}

TEST(LargeSizes, SlotOffsetsAreExact) {
  for (const uint64_t row_count : {uint64_t{3}, uint64_t{1} << 20, kMostRows})
    for (const uint64_t pitch : around_word_sizes()) {
      if (Wide{row_count} * pitch > Wide{1} << 61) continue;  // no plan has that
      AllGatherGemmWork work;
      work.slot_pitch = round_up<uint64_t>(pitch, 16);
      work.slot_bytes = round_up<uint64_t>(row_count * work.slot_pitch, 256);
      for (const uint32_t epoch : {0u, 1u, 2u, 0x7fffffffu, 0x80000000u, 0xfffffffeu, 0xffffffffu})
        for (const uint64_t row : {uint64_t{0}, uint64_t{1}, row_count / 2, row_count - 1}) {
          const Wide slot = epoch % 2;
          EXPECT_EQ(Wide{work.slot_offset(epoch, row)},
                    slot * work.slot_bytes + Wide{row} * work.slot_pitch);
        }
    }
}

/// Byte offsets of 4 GiB and more come from rows and pitches that both fit 32 bits.
TEST(LargeSizes, SlotOffsetsGoBeyondFourGiB) {
  AllGatherGemmWork work;
  work.slot_pitch = 16384;
  work.slot_bytes = uint64_t{262'145} * 16384;  // a row more than 4 GiB
  EXPECT_EQ(work.slot_offset(2, 262'143), (uint64_t{1} << 32) - 16384);
  EXPECT_EQ(work.slot_offset(2, 262'144), uint64_t{1} << 32);
  EXPECT_EQ(work.slot_offset(1, 262'144), (uint64_t{1} << 33) + 16384);
}

TEST(LargeSizes, RowBytesOfTheLargestDepthAreExact) {
  AllGatherGemmWork work;
  work.k = static_cast<uint32_t>(kMostRows);
  EXPECT_EQ(work.row_bytes(), uint64_t{1} << 31);
  work.k = 0x80000001;
  EXPECT_EQ(work.row_bytes(), (uint64_t{1} << 32) + 2);
}

TEST(LargeSizes, SlotFlagsCountIn64Bits) {
  for (const uint32_t world : {1u, 16u, 65535u})
    for (const uint32_t chunks : {1u, 1u << 15, 1u << 26, ~0u}) {
      SlotFlags flags;
      flags.world = world;
      flags.chunks = chunks;
      EXPECT_EQ(Wide{flags.size()}, Wide{flags.slots} * world * chunks + world);
    }
}

TEST(LargeSizes, SlotFlagsAreDistinctUpToTheLastOne) {
  SlotFlags flags;
  flags.world = 16;
  flags.chunks = 2000;
  std::vector<bool> used(flags.size(), false);
  const auto use = [&](uint32_t flag) {
    ASSERT_LT(flag, used.size());
    ASSERT_FALSE(used[flag]);
    used[flag] = true;
  };
  for (uint32_t rank = 0; rank < flags.world; ++rank) {
    use(flags.credit(rank));
    for (uint32_t slot = 0; slot < flags.slots; ++slot)
      for (uint32_t chunk = 0; chunk < flags.chunks; ++chunk) use(flags.arrived(slot, rank, chunk));
  }
}

TEST(LargeSizes, HeapAddressesKeepRegionAndOffsetApart) {
  for (const uint32_t region : {1u, 2u, 0x1000u, kMaxRegions - 1})
    for (const uint64_t offset :
         {uint64_t{0}, uint64_t{1} << 31, (uint64_t{1} << 32) + 1, kMaxRegionBytes - 1}) {
      const uint64_t address = heap_address(region, offset);
      EXPECT_EQ(region_of(address), region);
      EXPECT_EQ(offset_of(address), offset);
      EXPECT_EQ(Wide{address}, (Wide{region} << kOffsetBits) + offset);
    }
}

TEST(LargeSizes, GatherTasksReachTheLastChunk) {
  for (const ClusterShape cluster : {ClusterShape{1, 8}, {16, 1}, {7, 3}}) {
    const ChunkMap chunks{{kMostRows, cluster.world()}, 1u << 18};
    const GatherTasks tasks{cluster, chunks, cluster.world() / 2, cluster.nodes > 1};
    const Wide per_slice = chunks.max_chunks();
    const Wide sends = per_slice * (cluster.nodes - 1);
    const Wide pushes = per_slice * cluster.nodes * (cluster.gpus - 1);
    EXPECT_EQ(Wide{tasks.size()}, sends + pushes + (cluster.nodes > 1 ? per_slice : 0));
    EXPECT_EQ(tasks.task(tasks.size() - 1).chunk, chunks.max_chunks() - 1);
  }
}

}  // namespace
}  // namespace mkernel
