// GEMM+ReduceScatter and GEMM+AllReduce as a caller sees them: what travels, what is refused, what
// the plan reports; and that a result depends on nothing it should not.
#include <gtest/gtest.h>

#include <cstring>
#include <memory>
#include <utility>
#include <vector>

#include <mkernel/operators.h>

#include "core/float16.h"
#include "tests/harness/reduce_case.h"
#include "tests/operators/plan_on_ranks.h"

namespace mkernel::test {
namespace {

using harness::ReduceCase;

/// One plan on all ranks of a cluster, with inputs of the caller's making.
class Reduction {
 public:
  Reduction(const ClusterOptions& options, bool gathers, const GemmReduceShape& shape,
            const GemmReduceTuning& tuning = {})
      : ranks(options), gathers_(gathers), shape_(shape) {
    for (Context& context : ranks.contexts) {
      if (gathers)
        plans.push_back(std::make_unique<GemmAllReduce>(
            value_of(GemmAllReduce::create(context, shape, tuning))));
      else
        plans.push_back(std::make_unique<GemmReduceScatter>(
            value_of(GemmReduceScatter::create(context, shape, tuning))));
    }
  }

  /// Runs once; returns the rows of C in the order of ranks. Inputs are functions of the place.
  std::vector<std::vector<uint16_t>> run() {
    std::vector<std::vector<uint16_t>> a(ranks.size()), b(ranks.size()), c(ranks.size());
    for (size_t r = 0; r < ranks.size(); ++r) {
      const auto rank = static_cast<int64_t>(r);
      for (int64_t i = 0; i < shape_.m; ++i)
        for (int64_t d = 0; d < shape_.k; ++d) a[r].push_back(value(i * 31 + d * 7 + rank * 3));
      for (int64_t d = 0; d < shape_.k; ++d)
        for (int64_t j = 0; j < shape_.n; ++j) b[r].push_back(value(d * 13 + j * 5 + rank));
      c[r].resize(static_cast<size_t>(rows(rank) * shape_.n));
      expect_ok(plans[r]->run(ranks.streams[r].handle(),
                              {.a = {a[r].data(), shape_.m, shape_.k, shape_.k},
                               .b = {b[r].data(), shape_.k, shape_.n, shape_.n},
                               .c = {c[r].data(), rows(rank), shape_.n, shape_.n}}));
    }
    expect_ok(ranks.synchronize());
    return c;
  }

  int64_t rows(int64_t rank) const {
    return gathers_ ? shape_.m
                    : rows_of_rank(shape_.m, static_cast<int>(ranks.size()), static_cast<int>(rank))
                          .count;
  }

  Ranks ranks;
  std::vector<std::unique_ptr<GemmReduce>> plans;

 private:
  /// Not integers, so that the order of a sum shows.
  static uint16_t value(int64_t i) {
    return float_to_bf16(static_cast<float>(i * 2654435761 % 1009 - 504) * 0x1.3p-8f);
  }

  bool gathers_;
  GemmReduceShape shape_;
};

/// Shapes whose tiles are whole on the host machine (16 x 32), so that the bound is met exactly.
TEST(ReductionTraffic, IsTheLeastPossibleForBothPartialTypes) {
  for (const auto& [nodes, gpus] : {std::pair{1, 1}, {1, 4}, {3, 1}, {2, 3}, {4, 2}})
    for (const Partials partials : {Partials::k16Bit, Partials::kFp32})
      for (const bool gathers : {false, true}) {
        const int world = nodes * gpus;
        const GemmReduceShape shape{.m = 32 * world, .n = 96, .k = 5, .partials = partials};
        Reduction reduction(cluster_of(nodes, gpus), gathers, shape);
        reduction.run();
        const auto output = static_cast<uint64_t>(shape.m * shape.n);  // elements
        const uint64_t part = partials == Partials::kFp32 ? 4 : 2, result = gathers ? 2 : 0;
        for (const Context& context : reduction.ranks.contexts) {
          const RankStatistics s = value_of(context.statistics());
          const auto n = static_cast<uint64_t>(nodes), g = static_cast<uint64_t>(gpus);
          EXPECT_EQ(s.local_bytes, output * (g - 1) / g * (part + result)) << nodes << "x" << gpus;
          EXPECT_EQ(s.network_bytes, output * (n - 1) / (n * g) * (part + result))
              << nodes << "x" << gpus;
        }
      }
}

TEST(ReductionTraffic, OfRaggedShapesIsThatOfTheirElements) {
  Reduction reduction(cluster_of(3, 2), false, {.m = 101, .n = 37, .k = 3});
  reduction.run();
  uint64_t network = 0, local = 0;
  for (const Context& context : reduction.ranks.contexts) {
    network += value_of(context.statistics()).network_bytes;
    local += value_of(context.statistics()).local_bytes;
  }
  EXPECT_EQ(network, 2u * 101 * 37 * 2);
  EXPECT_EQ(local, 3u * 101 * 37 * 2);
}

TEST(Reductions, OfAllRanksAreTheSameBitsHoweverTheyAreComputed) {
  const GemmReduceShape shape{.m = 70, .n = 50, .k = 40};
  Reduction reference(cluster_of(2, 3), true, shape);
  const auto want = reference.run()[0];
  for (const GemmReduceTuning& tuning : {GemmReduceTuning{},
                                         {.blocks = 1, .round_tiles = 1},
                                         {.blocks = 5, .round_tiles = 3},
                                         {.workspace_bytes = 64 << 10}}) {
    ClusterOptions options = cluster_of(2, 3);
    options.loopback.order = LinkOrder::kReordered;
    options.loopback.link_us = 100;
    Reduction all(options, true, shape, tuning);
    for (const auto& c : all.run()) EXPECT_EQ(c, want);
    Reduction scattered(options, false, shape, tuning);
    std::vector<uint16_t> rows;
    for (const auto& c : scattered.run()) rows.insert(rows.end(), c.begin(), c.end());
    EXPECT_EQ(rows, want);
  }
}

/// A row is the same bits whether its rank owns it or another one, so whatever m is.
TEST(Reductions, OfARowDoNotDependOnTheNumberOfRows) {
  GemmReduceShape shape{.m = 64, .n = 33, .k = 20};
  Reduction whole(cluster_of(2, 2), true, shape);
  auto want = whole.run()[0];
  shape.m = 9;
  Reduction part(cluster_of(2, 2), true, shape);
  want.resize(9 * 33);
  EXPECT_EQ(part.run()[0], want);
}

TEST(Reductions, FinishWithAlphaBiasResidualAndActivation) {
  for (const Activation activation :
       {Activation::kNone, Activation::kRelu, Activation::kGelu, Activation::kSilu})
    for (const Output output : {Output::kSame, Output::kFp32})
      for (const bool gathers : {false, true}) {
        ReduceCase c;
        c.cluster = cluster_of(2, 2);
        c.gathers = gathers;
        c.shape = {.m = 75,
                   .n = 41,
                   .k = 30,
                   .alpha = -0.5f,
                   .bias = true,
                   .residual = true,
                   .activation = activation,
                   .output = output};
        c.pad_c = 3;
        c.pad_residual = 1;
        c.tuning.round_tiles = 2;
        expect_ok(run_case(c));
      }
}

TEST(ReductionPlans, StayWithinTheirWorkSpaceAndReportIt) {
  const GemmReduceShape shape{.m = 1000, .n = 300, .k = 4};
  for (const uint64_t most : {uint64_t{40} << 10, uint64_t{200} << 10, uint64_t{1} << 30}) {
    Reduction reduction(cluster_of(2, 2), false, shape, {.workspace_bytes = most});
    const uint64_t bytes = reduction.plans[0]->workspace_bytes();
    EXPECT_LE(bytes, most);
    EXPECT_GT(bytes, 0u);
    EXPECT_NE(reduction.plans[0]->describe().find("work space " + std::to_string(bytes)),
              std::string::npos);
    reduction.run();
  }
}

TEST(ReductionPlans, NoWorkSpaceIsNeededByOneRank) {
  ClusterOptions options = cluster_of(1, 1);
  options.heap_bytes_limit = 0;
  for (const bool gathers : {false, true})
    EXPECT_EQ(Reduction(options, gathers, {.m = 50, .n = 40, .k = 3}).plans[0]->workspace_bytes(),
              0u);
}

TEST(ReductionPlans, AreRefusedWithAReason) {
  Ranks ranks(cluster_of(1, 2));
  const auto create = [&](const GemmReduceShape& shape, const GemmReduceTuning& tuning = {}) {
    return GemmReduceScatter::create(ranks.contexts[0], shape, tuning).status();
  };
  expect_error(create({.m = -1, .n = 1, .k = 1}), Code::kInvalidArgument, {"m = -1", "0 to"});
  expect_error(create({.m = 1, .n = 0, .k = 1}), Code::kInvalidArgument, {"n = 0", "1 to"});
  expect_error(create({.m = 1, .n = 1, .k = 0}), Code::kInvalidArgument, {"k = 0"});
  expect_error(create({.m = 1, .n = 1, .k = 1}, {.blocks = 65}), Code::kInvalidArgument,
               {"blocks = 65"});
  expect_error(create({.m = 1, .n = 1, .k = 1}, {.round_tiles = -1}), Code::kInvalidArgument,
               {"round_tiles = -1"});
  expect_error(create({.m = 100, .n = 64, .k = 1}, {.workspace_bytes = 100}),
               Code::kInvalidArgument, {"workspace_bytes = 100", "need 1024"});
  expect_error(create({.m = int64_t{1} << 30, .n = int64_t{1} << 30, .k = 1}),
               Code::kInvalidArgument, {"output tiles", "2^32"});
}

TEST(ReductionPlans, ThatDifferBetweenRanksAreRefused) {
  const GemmReduceShape shape{.m = 64, .n = 8, .k = 8};
  std::vector<GemmReduceShape> others(6, shape);
  others[0].m = 65;
  others[1].n = 9;
  others[2].dtype = DType::kFp16;
  others[3].partials = Partials::kFp32;
  others[4].alpha = 2;
  others[5].output = Output::kFp32;
  for (const GemmReduceShape& other : others) {
    Ranks ranks(cluster_of(1, 2));
    const auto first = GemmReduceScatter::create(ranks.contexts[0], shape);
    expect_ok(first.status());
    expect_error(GemmReduceScatter::create(ranks.contexts[1], other).status(),
                 Code::kInvalidArgument, {"rank 1", "plan 0", "gemm-rs m 64 n 8 bf16"});
  }
}

TEST(ReductionRuns, RefuseViewsThatDoNotFit) {
  Ranks ranks(cluster_of(1, 1));
  auto plan = value_of(GemmReduceScatter::create(
      ranks.contexts[0], {.m = 4, .n = 4, .k = 4, .bias = true, .output = Output::kFp32}));
  std::vector<float> memory(16);
  const Matrix right{memory.data(), 4, 4, 4};
  const auto run = [&](const GemmReduceOperands& o) {
    return plan.run(ranks.streams[0].handle(), o);
  };
  const Matrix bias{memory.data(), 1, 4, 4};
  expect_error(run({.a = {memory.data(), 3, 4, 4}, .b = right, .c = right, .bias = bias}),
               Code::kInvalidArgument, {"a.rows = 3", "4 expected"});
  expect_error(run({.a = right, .b = right, .c = right}), Code::kInvalidArgument,
               {"bias.rows = 0", "1 expected"});
  const Matrix odd{reinterpret_cast<char*>(memory.data()) + 2, 4, 4, 4};
  expect_error(run({.a = right, .b = right, .c = odd, .bias = bias}), Code::kInvalidArgument,
               {"c.data", "4 bytes"});
}

}  // namespace
}  // namespace mkernel::test
