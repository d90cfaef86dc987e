// GEMM+ReduceScatter and GEMM+AllReduce on GPUs: the simulation's cases, on the cuda machine.
// Virtual ranks share the GPUs that there are.
#include <gtest/gtest.h>

#include <random>
#include <utility>

#include "operators/machine.h"
#include "tests/harness/reduce_case.h"

namespace mkernel::harness {
namespace {

constexpr int kCasesPerBatch = 15;
constexpr CaseLimits kLimits{.rows_per_rank = 300,
                             .cols = 600,
                             .depth = 300,
                             .blocks = 8,
                             .copy_engines = false,
                             .tile_workspace = 8 << 20};

class GemmReduceGpu : public ::testing::Test {
 protected:
  void SetUp() override {
    if (num_cuda_devices() == 0) GTEST_SKIP() << "no GPU on this machine";
  }

  static void expect_right(ReduceCase c) {
    c.cluster.device = DeviceKind::kCuda;
    c.cluster.timeout_us = 5'000'000;
    c.cluster.contact_timeout_us = 5'000'000;
    const Status status = run_case(c);
    EXPECT_TRUE(status) << status.to_string() << "\n" << c;
  }
  static void expect_both_right(ReduceCase c) {
    for (const bool gathers : {false, true}) {
      c.gathers = gathers;
      expect_right(c);
    }
  }

  static ReduceCase plain_case(int nodes, int gpus) {
    ReduceCase c;
    c.cluster.nodes = nodes;
    c.cluster.gpus = gpus;
    c.shape.m = 300 * nodes * gpus + 3;
    c.shape.n = 520;
    c.shape.k = 328;
    return c;
  }
};

class RandomReductions : public GemmReduceGpu, public ::testing::WithParamInterface<int> {};

TEST_P(RandomReductions, ComputeEveryElementRight) {
  const auto seed = static_cast<uint32_t>(::testing::GTEST_FLAG(random_seed) * 1000 + GetParam());
  std::mt19937 random(seed);
  for (int i = 0; i < kCasesPerBatch; ++i) {
    expect_right(random_reduce_case(random, GetParam() % 2 != 0, kLimits));
    ASSERT_FALSE(HasFailure()) << "batch seed " << seed << " case " << i;
  }
}

INSTANTIATE_TEST_SUITE_P(GemmReduceGpu, RandomReductions, ::testing::Range(0, 10));

TEST_F(GemmReduceGpu, IsRightOnOneRankWithAllTypesAndLayouts) {
  for (const DType dtype : {DType::kBf16, DType::kFp16})
    for (const BLayout layout : {BLayout::kKN, BLayout::kNK}) {
      ReduceCase c = plain_case(1, 1);
      c.shape.dtype = dtype;
      c.shape.b_layout = layout;
      expect_both_right(c);
    }
}

TEST_F(GemmReduceGpu, IsRightOnTwoRanks) {
  for (const Partials partials : {Partials::k16Bit, Partials::kFp32}) {
    ReduceCase c = plain_case(1, 2);
    c.shape.partials = partials;
    c.iterations = 10;
    expect_both_right(c);
  }
}

TEST_F(GemmReduceGpu, IsRightOnTwoNodes) {
  ReduceCase c = plain_case(2, 1);
  c.iterations = 10;
  expect_both_right(c);
}

TEST_F(GemmReduceGpu, IsRightWithEpiloguesAndOutputs) {
  for (const Activation activation :
       {Activation::kNone, Activation::kRelu, Activation::kGelu, Activation::kSilu})
    for (const Output output : {Output::kSame, Output::kFp32}) {
      ReduceCase c = plain_case(1, 2);
      c.shape.alpha = -0.5f;
      c.shape.bias = c.shape.residual = true;
      c.shape.activation = activation;
      c.shape.output = output;
      c.pad_c = static_cast<int>(activation);
      c.pad_residual = 1;
      expect_both_right(c);
    }
}

TEST_F(GemmReduceGpu, IsRightWhereSlotsAreUsedManyTimes) {
  for (const auto& [nodes, gpus] : {std::pair{1, 2}, {2, 2}, {3, 2}}) {
    ReduceCase c = plain_case(nodes, gpus);
    c.tuning.round_tiles = 1;
    c.iterations = 4;
    expect_both_right(c);
  }
}

TEST_F(GemmReduceGpu, IsRightAcrossTheWrapOfTheEpoch) {
  ReduceCase c = plain_case(2, 2);
  c.cluster.first_epoch = 0xfffffff8u;
  c.iterations = 6;
  expect_both_right(c);
}

TEST_F(GemmReduceGpu, IsRightWithOneBlockPerRank) {
  ReduceCase c = plain_case(2, 2);
  c.tuning = {.blocks = 1, .round_tiles = 2};
  expect_both_right(c);
}

TEST_F(GemmReduceGpu, IsRightForFewRows) {
  for (const int64_t m : {0, 1, 5, 16, 64, 128, 256}) {
    ReduceCase c = plain_case(1, 2);
    c.shape.m = m;
    expect_both_right(c);
  }
}

TEST_F(GemmReduceGpu, AThousandLaunchesBackToBackAreAllRight) {
  for (const auto& [nodes, gpus] : {std::pair{1, 2}, {2, 4}}) {
    ReduceCase c = plain_case(nodes, gpus);
    c.shape = {.m = 16 * nodes * gpus + 1, .n = 136, .k = 32};
    c.iterations = 500;
    c.order = GatherCase::Order::kByLaunch;
    expect_both_right(c);
  }
}

TEST_F(GemmReduceGpu, FailedWriteEndsInAFault) {
  ReduceCase c = plain_case(2, 2);
  c.cluster.device = DeviceKind::kCuda;
  c.cluster.loopback.fail_after = 3;
  const Status status = run_case(c);
  EXPECT_EQ(status.code(), Code::kPeerFailed) << status.to_string();
  c.cluster.loopback.fail_after = -1;
  expect_right(c);  // in the same process
}

}  // namespace
}  // namespace mkernel::harness
