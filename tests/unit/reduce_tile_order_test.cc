#include "schedule/reduce_tile_order.h"

#include <gtest/gtest.h>

#include <map>
#include <set>
#include <tuple>
#include <vector>

namespace mkernel {
namespace {

ReduceTileOrder order_of(ClusterShape cluster, uint64_t rows, uint32_t cols, uint32_t rank,
                         uint32_t round_tiles, uint32_t depth) {
  ReduceTileOrder order{
      cluster, FastRowSplit(RowSplit{rows, cluster.world()}), rank, cols, 16, 32, 2, round_tiles,
      depth};
  order.derive();
  return order;
}

TEST(ReduceTileOrder, CoversEveryElementOnce) {
  for (const uint64_t rows : {0u, 1u, 5u, 97u, 200u})
    for (const uint32_t round_tiles : {1u, 3u, 100u}) {
      const ReduceTileOrder order = order_of({2, 3}, rows, 70, 4, round_tiles, 1);
      std::map<std::pair<uint64_t, uint32_t>, int> seen;
      for (uint32_t i = 0; i < order.size(); ++i) {
        const ReduceTile t = order.tile(i);
        for (uint32_t r = 0; r < t.rows; ++r)
          for (uint32_t c = 0; c < t.cols; ++c)
            ++seen[{order.split.begin(t.slice) + t.row + r, t.col + c}];
      }
      EXPECT_EQ(seen.size(), rows * 70);
      for (const auto& [at, times] : seen) ASSERT_EQ(times, 1);
    }
}

/// At any time every rank of a node computes for another collector, and its own slice comes last.
TEST(ReduceTileOrder, SendsToDifferentRanksAtAnyTimeAndKeepsOwnRowsForLast) {
  constexpr ClusterShape kCluster{3, 4};
  for (uint32_t q = 0; q < kCluster.world(); ++q) {
    std::set<uint32_t> slices;
    for (uint32_t rank = 0; rank < kCluster.world(); ++rank)
      slices.insert(order_of(kCluster, 500, 70, rank, 4, 2).slice_at(q));
    EXPECT_EQ(slices.size(), kCluster.world()) << "step " << q;
  }
  for (uint32_t rank = 0; rank < kCluster.world(); ++rank)
    EXPECT_EQ(order_of(kCluster, 500, 70, rank, 4, 2).slice_at(kCluster.world() - 1), rank);
}

/// What epochs_since_use() says, against a walk through launches that notes who used a slot last.
TEST(ReduceTileOrder, KnowsWhenASlotWasLastUsed) {
  for (const uint64_t rows : {1u, 33u, 97u, 100u})
    for (const uint32_t round_tiles : {1u, 2u, 5u})
      for (const uint32_t depth : {1u, 2u, 3u, 4u}) {
        const ReduceTileOrder order = order_of({1, 3}, rows, 70, 0, round_tiles, depth);
        if (depth > order.num_rounds) continue;
        std::map<std::pair<uint32_t, uint32_t>, uint32_t> last;  // slice, ring -> epoch and round
        uint32_t epoch = 1000;
        for (int launch = 0; launch < 4; ++launch, epoch += order.epochs)
          for (uint32_t round = 0; round < order.num_rounds; ++round)
            for (uint32_t slice = 0; slice < 3; ++slice) {
              if (order.tiles_in_round(slice, round) == 0) continue;
              const auto used = last.find({slice, round % depth});
              if (used != last.end())
                ASSERT_EQ(epoch + round - order.epochs_since_use(slice, round), used->second)
                    << "rows " << rows << " round " << round << " slice " << slice;
              else
                ASSERT_LT(epoch + round - order.epochs_since_use(slice, round), 1000u);
              last[{slice, round % depth}] = epoch + round;
            }
      }
}

/// With any number of resident blocks per rank, even one: a walk in which a tile is computed only
/// if all that it waits for is done comes to its end. Waits are for the same round's tiles of local
/// peers and collectors, and for the credit of the round whose slots a tile uses.
TEST(ReduceTileOrder, HasNoCycleWithOneBlockPerRank) {
  constexpr ClusterShape kCluster{3, 2};
  for (const uint32_t round_tiles : {1u, 3u})
    for (const uint32_t depth : {1u, 2u}) {
      std::vector<ReduceTileOrder> orders;
      for (uint32_t rank = 0; rank < kCluster.world(); ++rank)
        orders.push_back(order_of(kCluster, 310, 100, rank, round_tiles, depth));
      // (rank, slice, round, place) of tiles whose sums are stored.
      std::set<std::tuple<uint32_t, uint32_t, uint32_t, uint32_t>> done;
      const auto round_done = [&](uint32_t rank, uint32_t slice, uint32_t round) {
        for (uint32_t place = 0; place < orders[0].tiles_in_round(slice, round); ++place)
          if (!done.contains({rank, slice, round, place})) return false;
        return true;
      };
      const auto may_store = [&](uint32_t rank, const ReduceTile& t) {
        const uint32_t node = kCluster.node_of(rank);
        const uint32_t collector = orders[rank].collector(node, t.slice);
        const uint32_t reader = collector == rank ? t.slice : collector;
        if (t.round >= depth && t.slice != rank && !round_done(reader, t.slice, t.round - depth))
          return false;
        for (uint32_t other = 0; other < kCluster.world(); ++other) {
          const bool local = kCluster.same_node(other, rank) && collector == rank;
          const bool rail = kCluster.gpu_of(other) == kCluster.gpu_of(rank) && t.slice == rank;
          if (other != rank && (local || rail) &&
              !done.contains({other, t.slice, t.round, t.place}))
            return false;
        }
        return true;
      };
      std::vector<uint32_t> next(kCluster.world(), 0);
      for (bool moved = true; moved;) {
        moved = false;
        for (uint32_t rank = 0; rank < kCluster.world(); ++rank)
          for (; next[rank] < orders[rank].size(); ++next[rank], moved = true) {
            const ReduceTile t = orders[rank].tile(next[rank]);
            if (t.rows != 0 && !may_store(rank, t)) break;
            if (t.rows != 0) done.insert({rank, t.slice, t.round, t.place});
          }
      }
      for (uint32_t rank = 0; rank < kCluster.world(); ++rank)
        EXPECT_EQ(next[rank], orders[rank].size()) << "rank " << rank << " waits for ever";
    }
}

}  // namespace
}  // namespace mkernel
