// AllGather+GEMM on virtual clusters of the host machine: the protocol under every kind of network
// that the loopback can be. Random tests take their seed from --gtest_random_seed and print it.
#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <random>
#include <thread>
#include <utility>
#include <vector>

#include "tests/harness/gather_case.h"

namespace mkernel::harness {
namespace {

#if defined(MK_SANITIZER)
constexpr int kCasesPerBatch = 8;  // sanitizers are ten times slower
#else
constexpr int kCasesPerBatch = 52;
#endif
constexpr int64_t kShortTimeoutUs = 1'000'000;  // yet long enough for ranks that are only slow

class RandomClusters : public ::testing::TestWithParam<int> {};

TEST_P(RandomClusters, ComputeEveryElementRight) {
  const auto seed = static_cast<uint32_t>(::testing::GTEST_FLAG(random_seed) * 1000 + GetParam());
  std::mt19937 random(seed);
  for (int i = 0; i < kCasesPerBatch; ++i) {
    const GatherCase c = random_case(random);
    const Status status = run_case(c);
    ASSERT_TRUE(status) << status.to_string() << "\n" << c;
    ASSERT_FALSE(HasFailure()) << "batch seed " << seed << " case " << i;
  }
}

INSTANTIATE_TEST_SUITE_P(AllGatherGemmSim, RandomClusters, ::testing::Range(0, 10));

GatherCase plain_case(int nodes, int gpus) {
  GatherCase c;
  c.cluster.nodes = nodes;
  c.cluster.gpus = gpus;
  c.cluster.timeout_us = 10'000'000 / kLimitScale;
  c.cluster.contact_timeout_us = c.cluster.timeout_us;
  c.shape.m = 37 * nodes * gpus + 3;
  c.shape.n = 70;
  c.shape.k = 50;
  c.tuning.chunk_rows = 16;
  return c;
}

void expect_right(const GatherCase& c) {
  const Status status = run_case(c);
  EXPECT_TRUE(status) << status.to_string() << "\n" << c;
}

TEST(AllGatherGemmSim, IsRightFarFromAndAcrossTheWrapOfTheEpoch) {
  for (const uint32_t first : {0u, 0x7ffffffeu, 0xfffffffdu, 0xffffffffu}) {
    GatherCase c = plain_case(3, 2);
    c.cluster.first_epoch = first;
    c.iterations = 6;
    c.cluster.loopback.order = LinkOrder::kReordered;
    expect_right(c);
  }
}

TEST(AllGatherGemmSim, IsRightWithThreeProxiesStalled) {
  GatherCase c = plain_case(4, 2);
  c.cluster.loopback.stalled_ranks = {0, 3, 6};
  c.cluster.loopback.stall_us = 20'000;
  c.cluster.loopback.order = LinkOrder::kReordered;
  c.iterations = 3;
  expect_right(c);
}

TEST(AllGatherGemmSim, IsRightOnASlowLateReorderingNetwork) {
  GatherCase c = plain_case(3, 3);
  c.cluster.loopback.order = LinkOrder::kReordered;
  c.cluster.loopback.link_gbs = 0.01;
  c.cluster.loopback.link_us = 2000;
  expect_right(c);
}

TEST(AllGatherGemmSim, TakesFewerRowsThanRanks) {
  for (int m = 0; m < 6; ++m) {
    GatherCase c = plain_case(3, 2);
    c.shape.m = m;
    expect_right(c);
  }
}

/// Ranks without rows hold nobody up by their data: only credit keeps the others from overwriting
/// what they have not read yet.
TEST(AllGatherGemmSim, RanksThatRunAheadDoNotOverwriteWhatOthersStillRead) {
  for (const auto& [nodes, push] :
       {std::pair{1, Push::kBlocks}, {1, Push::kEngine}, {3, Push::kBlocks}}) {
    GatherCase c = plain_case(nodes, 2);
    c.shape.m = 1;
    c.tuning.push = push;
    c.iterations = 6;
    c.pause = std::chrono::milliseconds(20);
    expect_right(c);
  }
}

/// Rank 0 waits for nobody's rows, so two of its launches are in the network at once, and the rows
/// of the earlier one come last: each wait must be for its own launch's chunk.
TEST(AllGatherGemmSim, LaunchesMayOvertakeEachOtherOnTheNetwork) {
  GatherCase c = plain_case(3, 1);
  c.shape.m = 1;
  c.iterations = 6;
  c.cluster.loopback.order = LinkOrder::kReordered;
  c.cluster.loopback.late_us = 200'000;
  expect_right(c);
}

TEST(AllGatherGemmSim, TakesOneBlockPerRank) {
  GatherCase c = plain_case(2, 4);
  c.tuning.blocks = 1;
  c.tuning.comm_blocks = 1;
  expect_right(c);
}

TEST(AllGatherGemmSim, FailedWriteEndsInAFaultOnEveryRank) {
  GatherCase c = plain_case(3, 2);
  c.cluster.loopback.fail_after = 5;
  const Status status = run_case(c);
  EXPECT_EQ(status.code(), Code::kPeerFailed) << status.to_string();
  EXPECT_NE(status.message().find("rank"), std::string::npos) << status.message();
}

TEST(AllGatherGemmSim, ANewClusterWorksAfterAFault) {
  GatherCase c = plain_case(2, 2);
  c.cluster.loopback.fail_after = 0;
  EXPECT_FALSE(run_case(c));
  c.cluster.loopback.fail_after = -1;
  expect_right(c);
}

/// Rank 1 has no rows, so nothing but credit keeps rank 0's later launches out of what rank 1's
/// caller reads between two of its own.
TEST(AllGatherGemmSim, GatheredRowsStayUntilTheNextLaunch) {
  ClusterOptions options;
  options.gpus = 2;
  auto contexts = std::move(Context::create_virtual(options).value());
  std::vector<AllGatherGemm> plans;
  std::vector<Stream> streams;
  for (Context& context : contexts) {
    plans.push_back(std::move(
        AllGatherGemm::create(context, {.m = 1, .n = 1, .k = 8, .gather_a = true}).value()));
    streams.push_back(std::move(context.create_stream().value()));
  }
  constexpr int kLaunches = 3;
  uint16_t a[kLaunches][8], b[8] = {}, c[2] = {};
  for (int i = 0; i < kLaunches; ++i) std::fill(a[i], a[i] + 8, static_cast<uint16_t>(i + 1));
  for (auto& row : a)
    ASSERT_TRUE(plans[0].run(streams[0].handle(), {row, 1, 8, 8}, {b, 8, 1, 1}, {&c[0], 1, 1, 1}));
  for (const auto& row : a) {
    ASSERT_TRUE(
        plans[1].run(streams[1].handle(), {nullptr, 0, 8, 8}, {b, 8, 1, 1}, {&c[1], 1, 1, 1}));
    ASSERT_TRUE(contexts[1].synchronize(streams[1].handle()));
    std::this_thread::sleep_for(std::chrono::milliseconds(20));  // time for a wrong write to come
    const auto* gathered = static_cast<const uint16_t*>(plans[1].gathered_a()->data);
    EXPECT_TRUE(std::equal(row, row + 8, gathered)) << "got row " << gathered[0];
  }
  ASSERT_TRUE(contexts[0].synchronize(streams[0].handle()));
}

TEST(AllGatherGemmSim, MissingRankEndsInATimeoutThatNamesIt) {
  ClusterOptions options;
  options.gpus = 3;
  options.timeout_us = kShortTimeoutUs / 4;
  options.contact_timeout_us = kShortTimeoutUs;
  auto contexts = Context::create_virtual(options);
  ASSERT_TRUE(contexts) << contexts.status().to_string();
  const AllGatherGemmShape shape{.m = 30, .n = 8, .k = 8};
  std::vector<AllGatherGemm> plans;
  for (const Context& context : contexts.value()) {
    auto plan = AllGatherGemm::create(context, shape);
    ASSERT_TRUE(plan) << plan.status().to_string();
    plans.push_back(std::move(plan.value()));
  }
  std::vector<Stream> streams;
  std::vector<Buffer> buffers;
  for (size_t r = 0; r < 2; ++r) {  // rank 2 never comes
    Context& context = contexts.value()[r];
    streams.push_back(std::move(context.create_stream().value()));
    for (int i = 0; i < 3; ++i) buffers.push_back(std::move(context.allocate(30 * 8 * 2).value()));
    const Buffer* b = &buffers[r * 3];
    ASSERT_TRUE(plans[r].run(streams[r].handle(), {b[0].data(), 10, 8, 8}, {b[1].data(), 8, 8, 8},
                             {b[2].data(), 30, 8, 8}));
  }
  const auto start = std::chrono::steady_clock::now();
  for (size_t r = 0; r < 2; ++r) {
    const Status status = contexts.value()[r].synchronize(streams[r].handle());
    EXPECT_EQ(status.code(), Code::kTimeout) << status.to_string();
    for (const char* part : {"rank 2", "(contact_timeout_us)"})
      EXPECT_NE(status.message().find(part), std::string::npos) << status.message();
  }
  EXPECT_GE(std::chrono::steady_clock::now() - start, std::chrono::microseconds(kShortTimeoutUs));
  EXPECT_LT(std::chrono::steady_clock::now() - start, std::chrono::seconds(20));
}

}  // namespace
}  // namespace mkernel::harness
