// Operators over a network of the operating system: all ranks' proxies in this process, so that
// sanitizers watch them at once.
#include <gtest/gtest.h>

#include "operators/plan_on_ranks.h"

namespace mkernel::test {
namespace {

class OverLibfabric : public testing::TestWithParam<Staging> {
 protected:
  void SetUp() override {
    ClusterOptions options = options_of(2, 1);
    const auto contexts = Context::create_virtual(options);
    if (contexts.status().code() == Code::kUnavailable ||
        contexts.status().code() == Code::kUnsupported)
      GTEST_SKIP() << contexts.status().message();
  }

  static ClusterOptions options_of(int nodes, int gpus) {
    ClusterOptions options = cluster_of(nodes, gpus);
    options.transport = "libfabric";
    options.libfabric.provider = "tcp";
    options.libfabric.interface = "127.0.0.1";
    options.libfabric.staging = GetParam();
    options.libfabric.staging_chunk_bytes = 1000;
    options.first_epoch = 0xfffffffeu;
    return options;
  }
};

TEST_P(OverLibfabric, LaunchesBackToBackAreRight) {
  for (const auto& [nodes, gpus] : {std::pair{2, 2}, {3, 1}}) {
    Ranks ranks(options_of(nodes, gpus));
    PlanOnRanks plan(ranks, {.m = 53, .n = 40, .k = 24}, {.chunk_rows = 16});
    for (int launch = 0; launch < 10; ++launch) expect_ok(plan.launch());
    expect_ok(ranks.synchronize());
    plan.verify();
  }
}

INSTANTIATE_TEST_SUITE_P(Both, OverLibfabric, testing::Values(Staging::kAuto, Staging::kAlways),
                         [](const auto& test) {
                           return test.param == Staging::kAuto ? "Direct" : "Staged";
                         });

}  // namespace
}  // namespace mkernel::test
