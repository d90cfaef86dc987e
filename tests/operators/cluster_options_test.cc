// What a cluster says to options that it cannot work with.
#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <string>
#include <vector>

#include "operators/machine.h"
#include "tests/operators/plan_on_ranks.h"

namespace mkernel::test {
namespace {

void expect_refused(const ClusterOptions& options, Code code,
                    const std::vector<std::string>& words) {
  const auto contexts = Context::create_virtual(options);
  ASSERT_FALSE(contexts) << "accepted, but should say: " << words.front();
  expect_error(contexts.status(), code, words);
}

TEST(ClusterOptions, CountsOutOfRangeAreRefusedByName) {
  for (const int count : {0, -1, std::numeric_limits<int>::min()}) {
    expect_refused(cluster_of(count, 2), Code::kInvalidArgument,
                   {"nodes = " + std::to_string(count), "at least 1"});
    expect_refused(cluster_of(2, count), Code::kInvalidArgument,
                   {"gpus = " + std::to_string(count), "at least 1"});
  }
}

TEST(ClusterOptions, MoreRanksThanCommandsCanNameAreRefused) {
  expect_refused(cluster_of(65536, 1), Code::kInvalidArgument, {"65536", "at most 65535"});
  expect_refused(cluster_of(1, 65536), Code::kInvalidArgument, {"65536", "at most 65535"});
  // A product of 2^32, which is 0 in 32 bits.
  expect_refused(cluster_of(65536, 65536), Code::kInvalidArgument, {"4294967296"});
  const int most = std::numeric_limits<int>::max();
  expect_refused(cluster_of(most, most), Code::kInvalidArgument, {"at most 65535"});
}

TEST(ClusterOptions, TimeoutsMustBeAboveZero) {
  for (const int64_t us : {int64_t{0}, int64_t{-1}, std::numeric_limits<int64_t>::min()}) {
    ClusterOptions options = cluster_of(1, 2);
    options.timeout_us = us;
    expect_refused(options, Code::kInvalidArgument,
                   {"timeout_us = " + std::to_string(us), "must be 1 to"});
    options = cluster_of(1, 2);
    options.contact_timeout_us = us;
    expect_refused(options, Code::kInvalidArgument,
                   {"contact_timeout_us = " + std::to_string(us), "must be 1 to"});
  }
}

TEST(ClusterOptions, TimeIsStretchedNotShortened) {
  for (const double scale : {0.0, -1.0, 0.99, 1e7, std::nan(""), HUGE_VAL}) {
    ClusterOptions options = cluster_of(1, 2);
    options.time_scale = scale;
    expect_refused(options, Code::kInvalidArgument, {"time_scale = ", "must be 1 to"});
  }
}

/// Microseconds become nanoseconds: 2^61 of them are a multiple of 2^64 ns, which read as no time
/// at all, so that every wait failed at once.
TEST(ClusterOptions, AVeryLongTimeoutIsRefusedOrLong) {
  for (const int64_t us :
       {int64_t{1} << 61, (int64_t{1} << 61) + 1, std::numeric_limits<int64_t>::max()}) {
    ClusterOptions options = cluster_of(2, 2);
    options.timeout_us = us;
    if (!Context::create_virtual(options)) continue;
    Ranks ranks(options);
    PlanOnRanks plan(ranks, {.m = 90, .n = 40, .k = 20});
    for (int i = 0; i < 3; ++i) plan.expect_right();
    if (HasFailure()) {
      ADD_FAILURE() << "timeout_us = " << us;
      return;
    }
  }
}

TEST(ClusterOptions, UnknownTransportsAreRefusedByName) {
  for (const std::string name : {"tcp", "Loopback", "", "auto "}) {
    for (const int nodes : {1, 2}) {
      ClusterOptions options = cluster_of(nodes, 1);
      options.transport = name;
      expect_refused(options, Code::kInvalidArgument, {"transport = " + name, "auto", "loopback"});
    }
  }
}

TEST(ClusterOptions, TransportIsNoneOnOneNode) {
  ClusterOptions options = cluster_of(1, 2);
  options.transport = "loopback";
  EXPECT_EQ(Ranks(options).contexts[0].transport(), "none");
  options.nodes = 2;
  EXPECT_EQ(Ranks(options).contexts[0].transport(), "loopback");
}

TEST(ClusterOptions, CudaIsUnavailableWithoutAGpu) {
  if (num_cuda_devices() > 0) GTEST_SKIP() << "there is a GPU";
  ClusterOptions options = cluster_of(1, 1);
  options.device = DeviceKind::kCuda;
#if defined(MK_WITH_CUDA)
  expect_refused(options, Code::kUnavailable, {});
#else
  expect_refused(options, Code::kUnsupported, {"without CUDA"});
#endif
}

TEST(ClusterOptions, HeapLimitsBeyondAddressesAreRefused) {
  ClusterOptions options = cluster_of(1, 1);
  options.heap_bytes_limit = (uint64_t{1} << 44) + 1;
  expect_refused(options, Code::kInvalidArgument, {"heap_bytes_limit = 17592186044417"});
  options.heap_bytes_limit = uint64_t{1} << 44;
  EXPECT_TRUE(Context::create_virtual(options));
}

std::vector<LoopbackOptions> bad_links() {
  const double nan = std::nan(""), infinity = std::numeric_limits<double>::infinity();
  std::vector<LoopbackOptions> bad;
  for (const double gbs : {-1.0, 1e-9, nan, -infinity}) bad.emplace_back().link_gbs = gbs;
  for (const double us : {-1.0, nan, infinity}) {
    bad.emplace_back().link_us = us;
    bad.emplace_back().stall_us = us;
    bad.emplace_back().late_us = us;
  }
  for (const int rank : {-1, 2, 1 << 30}) bad.emplace_back().stalled_ranks = {rank};
  return bad;
}

TEST(ClusterOptions, ImpossibleLinksAreRefused) {
  for (const LoopbackOptions& link : bad_links()) {
    ClusterOptions options = cluster_of(2, 1);
    options.loopback = link;
    expect_refused(options, Code::kInvalidArgument, {"loopback: "});
  }
}

/// An option out of its range is an error, and not only once the cluster has grown.
TEST(ClusterOptions, ImpossibleLinksAreRefusedOnOneNodeToo) {
  for (const LoopbackOptions& link : bad_links()) {
    ClusterOptions options = cluster_of(1, 2);
    options.loopback = link;
    expect_refused(options, Code::kInvalidArgument, {"loopback: "});
  }
}

TEST(ClusterOptions, ContextsKnowTheirPlace) {
  const Ranks ranks(cluster_of(3, 2));
  ASSERT_EQ(ranks.size(), 6u);
  for (int r = 0; r < 6; ++r) {
    const Context& context = ranks.contexts[static_cast<size_t>(r)];
    EXPECT_EQ(context.rank(), r);
    EXPECT_EQ(context.world_size(), 6);
    EXPECT_EQ(context.nodes(), 3);
    EXPECT_EQ(context.gpus(), 2);
    EXPECT_EQ(context.device(), DeviceKind::kHost);
  }
}

}  // namespace
}  // namespace mkernel::test
