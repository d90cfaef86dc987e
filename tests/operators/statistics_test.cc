// Statistics of AllGather+GEMM, against what the algorithm says must be computed and moved.
#include <gtest/gtest.h>

#include <utility>
#include <vector>

#include <mkernel/operators.h>

#include "core/maths.h"
#include "operators/machine.h"
#include "tests/operators/plan_on_ranks.h"

namespace mkernel::test {
namespace {

/// Of one launch on one rank, with tiles of `tile_n` columns.
RankStatistics expected_launch(const Context& context, const AllGatherGemmShape& shape,
                               int tile_n) {
  const MachineShape machine = create_host_machines(1)[0]->shape();
  const auto nodes = static_cast<uint64_t>(context.nodes());
  const auto gpus = static_cast<uint64_t>(context.gpus());
  const auto rows_of = [&](int rank) {
    return static_cast<uint64_t>(rows_of_rank(shape.m, context.world_size(), rank).count);
  };
  const auto k = static_cast<uint64_t>(shape.k), n = static_cast<uint64_t>(shape.n);
  RankStatistics s;
  s.launches = 1;
  for (int rank = 0; rank < context.world_size(); ++rank) {
    s.tiles += ceil_div<uint64_t>(rows_of(rank), machine.tile_m) *
               ceil_div(n, static_cast<uint64_t>(tile_n));
    // Own rows, and those that come on this rank's rail, go to each of the node's other ranks.
    if (rank % context.gpus() == context.rank() % context.gpus())
      s.local_bytes += (gpus - 1) * rows_of(rank) * k * kElementBytes;
  }
  // Messages are whole rows of the work space, which are multiples of 16 bytes.
  s.network_bytes = (nodes - 1) * rows_of(context.rank()) * round_up<uint64_t>(2 * k, 16);
  return s;
}

void add(RankStatistics& sum, const RankStatistics& s) {
  sum.launches += s.launches;
  sum.tiles += s.tiles;
  sum.local_bytes += s.local_bytes;
  sum.network_bytes += s.network_bytes;
}

void expect_equal(const RankStatistics& got, const RankStatistics& want) {
  EXPECT_EQ(got.launches, want.launches);
  EXPECT_EQ(got.tiles, want.tiles);
  EXPECT_EQ(got.local_bytes, want.local_bytes);
  EXPECT_EQ(got.network_bytes, want.network_bytes);
}

TEST(Statistics, AreExactOnEveryClusterShapeAndTuning) {
  for (const auto& [nodes, gpus] : {std::pair{1, 1}, {1, 4}, {3, 1}, {2, 3}, {3, 2}})
    for (const AllGatherGemmTuning& tuning :
         {AllGatherGemmTuning{.tile_n = 32},
          {.tile_n = 16, .push = Push::kBlocks},
          {.blocks = 1, .comm_blocks = 1, .chunk_rows = 16, .tile_n = 16},
          {.blocks = 5, .comm_blocks = 4, .chunk_rows = 48, .tile_n = 32}}) {
      Ranks ranks(cluster_of(nodes, gpus));
      std::vector<RankStatistics> sums(ranks.size());
      for (const AllGatherGemmShape& shape : {AllGatherGemmShape{.m = 131, .n = 33, .k = 9},
                                              {.m = 2, .n = 32, .k = 8},
                                              {.m = 0, .n = 1, .k = 1},
                                              {.m = 96, .n = 65, .k = 15, .gather_a = true}}) {
        PlanOnRanks plan(ranks, shape, tuning);
        for (int launch = 0; launch < 2; ++launch) {
          plan.expect_right();
          for (size_t r = 0; r < ranks.size(); ++r) {
            SCOPED_TRACE("rank " + std::to_string(r) + " of " + std::to_string(nodes) + "x" +
                         std::to_string(gpus) + ", m " + std::to_string(shape.m));
            add(sums[r], expected_launch(ranks.contexts[r], shape, tuning.tile_n));
            expect_equal(value_of(ranks.contexts[r].statistics()), sums[r]);
          }
        }
      }
      // And they outlive their plans.
      for (size_t r = 0; r < ranks.size(); ++r)
        expect_equal(value_of(ranks.contexts[r].statistics()), sums[r]);
    }
}

TEST(Statistics, BytesOnTheNetworkOfAllRanksAreTheLeastPossible) {
  Ranks ranks(cluster_of(3, 2));
  PlanOnRanks(ranks, {.m = 101, .n = 7, .k = 8}).expect_right();
  uint64_t network_bytes = 0;
  for (const Context& context : ranks.contexts)
    network_bytes += value_of(context.statistics()).network_bytes;
  EXPECT_EQ(network_bytes, 2u * 101 * 16) << "every row crosses to each other node once";
}

TEST(Statistics, OfProxiesAreWhatTheirRanksAskedFor) {
  for (const LinkOrder order : {LinkOrder::kInOrder, LinkOrder::kReordered}) {
    ClusterOptions options = cluster_of(3, 2);
    options.loopback.order = order;
    Ranks ranks(options);
    PlanOnRanks(ranks, {.m = 96, .n = 7, .k = 8}, {.chunk_rows = 16}).expect_right();
    for (const Context& context : ranks.contexts) {  // the plan is gone, so all is complete
      const RankStatistics s = value_of(context.statistics());
      EXPECT_EQ(s.proxy.commands, 2u + 2) << "a chunk and a credit to each of two peers";
      EXPECT_EQ(s.proxy.bytes, s.network_bytes);
      EXPECT_LE(s.proxy.batches, s.proxy.commands);
      EXPECT_EQ(s.proxy.stale_arrivals, 0u);
      EXPECT_EQ(s.proxy.retries, 0u);
      if (order == LinkOrder::kInOrder) {
        EXPECT_EQ(s.proxy.arrivals, 0u);
      }
    }
  }
}

TEST(Statistics, AreOfTheirOwnClusterOnly) {
  Ranks one(cluster_of(1, 2)), other(cluster_of(1, 2));
  PlanOnRanks(one, {.m = 20, .n = 7, .k = 8}).expect_right();
  expect_equal(value_of(other.contexts[0].statistics()), {});
}

}  // namespace
}  // namespace mkernel::test
