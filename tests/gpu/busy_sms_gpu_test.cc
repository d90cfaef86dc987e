// Launches while another kernel holds some of the SMs that they count on: they take the others, and
// do not wait for those. The kernel holds on until they are done, or for ten times as long as the
// limit of their waits.
#include <gtest/gtest.h>

#include <algorithm>
#include <memory>
#include <tuple>

#include "operators/machine.h"
#include "tests/gpu/sm_holder.h"
#include "tests/harness/gather_case.h"
#include "tests/harness/reduce_case.h"

namespace mkernel::harness {
namespace {

/// How many SMs are held on each GPU, and the cluster.
class BusySmsGpu : public ::testing::TestWithParam<std::tuple<int, int, int>> {
 protected:
  void SetUp() override {
    if (num_cuda_devices() == 0) GTEST_SKIP() << "no GPU on this machine";
  }

  template <class Case>
  void expect_right(Case c) {
    const auto [sms, nodes, gpus] = GetParam();
    c.cluster.nodes = nodes;
    c.cluster.gpus = gpus;
    c.cluster.device = DeviceKind::kCuda;
    c.cluster.timeout_us = c.cluster.contact_timeout_us = 1'000'000;
    c.shape.m = 700 * nodes * gpus;
    c.shape.n = 1032;
    c.shape.k = 328;
    std::unique_ptr<SmHolder> holder;
    // Not before everything is set up: the driver waits for running kernels when it loads others.
    c.before_launches = [&] {
      holder = std::make_unique<SmHolder>(std::min(num_cuda_devices(), nodes * gpus), sms);
    };
    c.after_launches = [&] {
      EXPECT_TRUE(holder->holds());
      holder.reset();
    };
    const Status status = run_case(c);
    EXPECT_TRUE(status) << status.to_string() << "\n" << c;
  }
};

TEST_P(BusySmsGpu, AllGatherGemmTakesTheOthers) { expect_right(GatherCase{}); }
TEST_P(BusySmsGpu, GemmReduceScatterTakesTheOthers) { expect_right(ReduceCase{}); }
TEST_P(BusySmsGpu, GemmAllReduceTakesTheOthers) {
  ReduceCase c;
  c.gathers = true;
  expect_right(c);
}

INSTANTIATE_TEST_SUITE_P(HeldSms, BusySmsGpu,
                         ::testing::Values(std::tuple{1, 1, 1}, std::tuple{2, 1, 2},
                                           std::tuple{8, 1, 1}, std::tuple{8, 1, 2},
                                           std::tuple{8, 2, 2}));

}  // namespace
}  // namespace mkernel::harness
