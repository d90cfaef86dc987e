// GEMM+ReduceScatter and GEMM+AllReduce on virtual clusters of the host machine: the protocol under
// every kind of network that the loopback can be. Random tests take their seed from
// --gtest_random_seed and print it.
#include <gtest/gtest.h>

#include <chrono>
#include <random>
#include <tuple>
#include <utility>
#include <vector>

#include "tests/harness/reduce_case.h"

namespace mkernel::harness {
namespace {

#if defined(MK_SANITIZER)
constexpr int kCasesPerBatch = 6, kNetworks = 2;  // sanitizers are ten times slower
#else
constexpr int kCasesPerBatch = 40, kNetworks = 6;
#endif
constexpr int64_t kShortTimeoutUs = 1'000'000;  // yet long enough for ranks that are only slow

class RandomReductions : public ::testing::TestWithParam<int> {};

TEST_P(RandomReductions, ComputeEveryElementRight) {
  const auto seed = static_cast<uint32_t>(::testing::GTEST_FLAG(random_seed) * 1000 + GetParam());
  std::mt19937 random(seed);
  for (int i = 0; i < kCasesPerBatch; ++i) {
    const ReduceCase c = random_reduce_case(random, GetParam() % 2 != 0);
    const Status status = run_case(c);
    ASSERT_TRUE(status) << status.to_string() << "\n" << c;
    ASSERT_FALSE(HasFailure()) << "batch seed " << seed << " case " << i;
  }
}

INSTANTIATE_TEST_SUITE_P(GemmReduceSim, RandomReductions, ::testing::Range(0, 20));

ReduceCase plain_case(int nodes, int gpus) {
  ReduceCase c;
  c.cluster.nodes = nodes;
  c.cluster.gpus = gpus;
  c.shape.m = 37 * nodes * gpus + 3;
  c.shape.n = 70;
  c.shape.k = 50;
  c.tuning.round_tiles = 2;
  return c;
}

/// Both operators.
void expect_right(ReduceCase c) {
  for (const bool gathers : {false, true}) {
    c.gathers = gathers;
    const Status status = run_case(c);
    EXPECT_TRUE(status) << status.to_string() << "\n" << c;
  }
}

TEST(GemmReduceSim, IsRightFarFromAndAcrossTheWrapOfTheEpoch) {
  for (const uint32_t first : {0u, 0x7ffffffau, 0xfffffff0u, 0xffffffffu}) {
    ReduceCase c = plain_case(3, 2);
    c.cluster.first_epoch = first;
    c.iterations = 6;
    c.cluster.loopback.order = LinkOrder::kReordered;
    expect_right(c);
  }
}

TEST(GemmReduceSim, IsRightWithThreeProxiesStalled) {
  ReduceCase c = plain_case(4, 2);
  c.cluster.loopback.stalled_ranks = {0, 3, 6};
  c.cluster.loopback.stall_us = 10'000;
  c.cluster.loopback.order = LinkOrder::kReordered;
  c.iterations = 3;
  expect_right(c);
}

TEST(GemmReduceSim, IsRightOnASlowLateReorderingNetwork) {
  ReduceCase c = plain_case(3, 3);
  c.cluster.loopback.order = LinkOrder::kReordered;
  c.cluster.loopback.link_gbs = 0.01;
  c.cluster.loopback.link_us = 2000;
  expect_right(c);
}

TEST(GemmReduceSim, TakesFewerRowsThanRanks) {
  for (int m = 0; m < 6; ++m) {
    ReduceCase c = plain_case(3, 2);
    c.shape.m = m;
    expect_right(c);
  }
}

/// Whatever the arrival order: sums that are not exact show in which order they were added.
TEST(GemmReduceSim, AddsRanksThenNodesInOrderOnAnyNetwork) {
  for (const Partials partials : {Partials::k16Bit, Partials::kFp32})
    for (uint64_t seed = 1; seed <= kNetworks; ++seed) {
      ReduceCase c = plain_case(3, 4);
      c.rounds = true;
      c.shape.partials = partials;
      c.cluster.loopback.order = LinkOrder::kReordered;
      c.cluster.loopback.seed = seed;
      c.cluster.loopback.late_us = seed % 2 == 0 ? 2000 : 0;
      expect_right(c);
    }
}

/// One round at a time has slots, so every round waits for the credit of the one before; one rank's
/// launches all come before the next one's, which reads what they sent.
TEST(GemmReduceSim, RanksThatRunAheadDoNotOverwriteWhatOthersStillRead) {
  constexpr uint64_t kTile = 16 * 32 * 2;
  for (const auto& [nodes, gpus, tiles] : {std::tuple{1, 2, 3}, {3, 1, 7}, {3, 2, 13}}) {
    ReduceCase c = plain_case(nodes, gpus);
    c.tuning.round_tiles = 1;
    c.tuning.workspace_bytes = static_cast<uint64_t>(tiles) * kTile;
    c.iterations = 6;
    c.pause = std::chrono::milliseconds(20);
    expect_right(c);
    c.shape.m = 1;
    expect_right(c);
  }
}

TEST(GemmReduceSim, TakesOneBlockPerRankAndOneTilePerRound) {
  for (const auto& [nodes, gpus] : {std::pair{1, 4}, {2, 4}, {4, 1}}) {
    ReduceCase c = plain_case(nodes, gpus);
    c.tuning = {.blocks = 1, .round_tiles = 1};
    expect_right(c);
  }
}

TEST(GemmReduceSim, LaunchesMayOvertakeEachOtherOnTheNetwork) {
  ReduceCase c = plain_case(3, 1);
  c.shape.m = 1;
  c.iterations = 6;
  c.cluster.loopback.order = LinkOrder::kReordered;
  c.cluster.loopback.late_us = 100'000;
  expect_right(c);
}

TEST(GemmReduceSim, FailedWriteEndsInAFaultOnEveryRankAndANewClusterWorks) {
  ReduceCase c = plain_case(3, 2);
  for (const int64_t after : {0, 5, 60}) {
    c.cluster.loopback.fail_after = after;
    c.gathers = after != 5;
    const Status status = run_case(c);
    EXPECT_EQ(status.code(), Code::kPeerFailed) << status.to_string();
    EXPECT_NE(status.message().find("rank"), std::string::npos) << status.message();
  }
  c.cluster.loopback.fail_after = -1;
  expect_right(c);
}

TEST(GemmReduceSim, MissingRankEndsInATimeoutThatNamesIt) {
  ClusterOptions options;
  options.gpus = 3;
  options.timeout_us = kShortTimeoutUs;
  options.contact_timeout_us = kShortTimeoutUs;
  auto contexts = std::move(Context::create_virtual(options).value());
  std::vector<GemmReduceScatter> plans;
  std::vector<Stream> streams;
  for (Context& context : contexts) {
    plans.push_back(
        std::move(GemmReduceScatter::create(context, {.m = 30, .n = 8, .k = 8}).value()));
    streams.push_back(std::move(context.create_stream().value()));
  }
  std::vector<uint16_t> a(240), b(64), c0(80), c1(80);
  uint16_t* c[] = {c0.data(), c1.data()};
  for (size_t r = 0; r < 2; ++r)  // rank 2 never comes
    ASSERT_TRUE(
        plans[r].run(streams[r].handle(),
                     {.a = {a.data(), 30, 8, 8}, .b = {b.data(), 8, 8, 8}, .c = {c[r], 10, 8, 8}}));
  const auto start = std::chrono::steady_clock::now();
  for (size_t r = 0; r < 2; ++r) {
    const Status status = contexts[r].synchronize(streams[r].handle());
    EXPECT_EQ(status.code(), Code::kTimeout) << status.to_string();
    EXPECT_NE(status.message().find("partial sums"), std::string::npos) << status.message();
    EXPECT_NE(status.message().find("rank 2"), std::string::npos) << status.message();
  }
  EXPECT_LT(std::chrono::steady_clock::now() - start, std::chrono::seconds(20));
}

}  // namespace
}  // namespace mkernel::harness
