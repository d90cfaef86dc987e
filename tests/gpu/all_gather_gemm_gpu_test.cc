// AllGather+GEMM on GPUs: the simulation's cases, on the cuda machine. Virtual ranks share the GPUs
// that there are.
#include <gtest/gtest.h>

#include <random>

#include "operators/machine.h"
#include "tests/harness/gather_case.h"

namespace mkernel::harness {
namespace {

constexpr int kCasesPerBatch = 30;
constexpr CaseLimits kLimits{.rows_per_rank = 300,
                             .cols = 600,
                             .depth = 300,
                             .blocks = 8,
                             .tile_widths = {256, 128},
                             .copy_engines = false};

class AllGatherGemmGpu : public ::testing::Test {
 protected:
  void SetUp() override {
    if (num_cuda_devices() == 0) GTEST_SKIP() << "no GPU on this machine";
  }

  static void expect_right(GatherCase c) {
    c.cluster.device = DeviceKind::kCuda;
    c.cluster.timeout_us = 5'000'000;
    c.cluster.contact_timeout_us = 5'000'000;
    const Status status = run_case(c);
    EXPECT_TRUE(status) << status.to_string() << "\n" << c;
  }

  static GatherCase plain_case(int nodes, int gpus) {
    GatherCase c;
    c.cluster.nodes = nodes;
    c.cluster.gpus = gpus;
    c.shape.m = 300 * nodes * gpus + 3;
    c.shape.n = 520;
    c.shape.k = 328;
    return c;
  }
};

class RandomClusters : public AllGatherGemmGpu, public ::testing::WithParamInterface<int> {};

TEST_P(RandomClusters, ComputeEveryElementRight) {
  const auto seed = static_cast<uint32_t>(::testing::GTEST_FLAG(random_seed) * 1000 + GetParam());
  std::mt19937 random(seed);
  for (int i = 0; i < kCasesPerBatch; ++i) {
    expect_right(random_case(random, kLimits));
    ASSERT_FALSE(HasFailure()) << "batch seed " << seed << " case " << i;
  }
}

INSTANTIATE_TEST_SUITE_P(AllGatherGemmGpu, RandomClusters, ::testing::Range(0, 10));

TEST_F(AllGatherGemmGpu, IsRightForRandomShapesOnOneAndOnTwoRanks) {
  std::mt19937 random(static_cast<uint32_t>(::testing::GTEST_FLAG(random_seed)));
  for (int i = 0; i < 100 && !HasFailure(); ++i) {
    CaseLimits limits = kLimits;
    limits.rows_per_rank = 1000;
    limits.blocks = 60;
    GatherCase c = random_case(random, limits);
    c.cluster.nodes = 1;
    c.cluster.gpus = 1 + i % 2;
    c.shape.m = std::min<int64_t>(c.shape.m, 2000);
    c.tuning.comm_blocks = std::min(c.tuning.comm_blocks, c.tuning.blocks);
    c.cluster.loopback = {};
    expect_right(c);
  }
}

TEST_F(AllGatherGemmGpu, IsRightOnOneRankWithAllTypesLayoutsAndTiles) {
  for (const DType dtype : {DType::kBf16, DType::kFp16})
    for (const BLayout layout : {BLayout::kKN, BLayout::kNK})
      for (const int tile_n : {256, 128}) {
        GatherCase c = plain_case(1, 1);
        c.shape.dtype = dtype;
        c.shape.b_layout = layout;
        c.tuning.tile_n = tile_n;
        expect_right(c);
      }
}

TEST_F(AllGatherGemmGpu, TilesOfAnotherWidthAreRefused) {
  GatherCase c = plain_case(1, 1);
  c.cluster.device = DeviceKind::kCuda;
  c.tuning.tile_n = 64;
  const Status status = run_case(c);
  EXPECT_EQ(status.code(), Code::kInvalidArgument) << status.to_string();
  EXPECT_NE(status.message().find("256, 128"), std::string::npos) << status.to_string();
}

TEST_F(AllGatherGemmGpu, IsRightOnTwoRanks) {
  GatherCase c = plain_case(1, 2);
  c.iterations = 20;
  expect_right(c);
}

TEST_F(AllGatherGemmGpu, IsRightWithPushesByCopyEngine) {
  if (num_cuda_devices() < 2) GTEST_SKIP() << "one GPU: there is no engine to push to a peer with";
  std::mt19937 random(static_cast<uint32_t>(::testing::GTEST_FLAG(random_seed)));
  for (int i = 0; i < 20 && !HasFailure(); ++i) {
    GatherCase c = random_case(random, kLimits);
    c.cluster.nodes = 1;
    c.cluster.gpus = 2;
    c.cluster.loopback = {};
    c.shape.gather_a = false;
    c.tuning.push = Push::kEngine;
    expect_right(c);
  }
}

TEST_F(AllGatherGemmGpu, IsRightOnTwoNodes) {
  GatherCase c = plain_case(2, 1);
  c.iterations = 20;
  expect_right(c);
}

TEST_F(AllGatherGemmGpu, IsRightAcrossTheWrapOfTheEpoch) {
  GatherCase c = plain_case(2, 2);
  c.cluster.first_epoch = 0xfffffffdu;
  c.iterations = 6;
  expect_right(c);
}

TEST_F(AllGatherGemmGpu, IsRightWithOneBlockPerRank) {
  GatherCase c = plain_case(2, 2);
  c.tuning = {.blocks = 1, .comm_blocks = 1, .chunk_rows = 0};
  expect_right(c);
}

TEST_F(AllGatherGemmGpu, RanksThatRunAheadDoNotOverwriteWhatOthersStillRead) {
  GatherCase c = plain_case(3, 2);
  c.shape.m = 1;
  c.iterations = 6;
  c.pause = std::chrono::milliseconds(5);
  expect_right(c);
}

TEST_F(AllGatherGemmGpu, AThousandLaunchesBackToBackAreAllRight) {
  for (const auto& [nodes, gpus] : {std::pair{1, 2}, {2, 8}}) {
    GatherCase c = plain_case(nodes, gpus);
    c.shape = {.m = 16 * nodes * gpus + 1, .n = 136, .k = 64};
    c.iterations = 1000;
    c.order = GatherCase::Order::kByLaunch;
    expect_right(c);
  }
}

TEST_F(AllGatherGemmGpu, FailedWriteEndsInAFault) {
  GatherCase c = plain_case(2, 2);
  c.cluster.device = DeviceKind::kCuda;
  c.cluster.loopback.fail_after = 3;
  const Status status = run_case(c);
  EXPECT_EQ(status.code(), Code::kPeerFailed) << status.to_string();
  c.cluster.loopback.fail_after = -1;
  expect_right(c);  // in the same process
}

}  // namespace
}  // namespace mkernel::harness
