// What is left after something broke: an error on every rank, in bounded time, for good.
#include <gtest/gtest.h>

#include <chrono>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include <mkernel/operators.h>

#include "tests/operators/plan_on_ranks.h"

namespace mkernel::test {
namespace {

using std::chrono::seconds;

constexpr AllGatherGemmShape kShape{.m = 60, .n = 10, .k = 12};

/// A cluster whose first write fails, after a launch.
std::unique_ptr<Ranks> broken_ranks(int gpus = 2) {
  ClusterOptions options = cluster_of(2, gpus);
  options.loopback.fail_after = 0;
  auto ranks = std::make_unique<Ranks>(options);
  PlanOnRanks plan(*ranks, kShape);
  (void)plan.launch();
  EXPECT_EQ(ranks->synchronize().code(), Code::kPeerFailed);
  return ranks;
}

/// Launches on every rank until something fails, or `launches` have ended well.
Status launch_until_failure(Ranks& ranks, PlanOnRanks& plan, int launches) {
  Status status;
  for (int i = 0; i < launches && status; ++i) status = plan.launch();
  // All streams stop before the buffers go.
  if (const Status end = ranks.synchronize(); !end) status = end;
  return status;
}

class FailingNetwork : public ::testing::TestWithParam<int> {};

TEST_P(FailingNetwork, EndsEveryRankInBoundedTimeWhicheverWriteFails) {
  constexpr int kStep = kSanitizer ? 3 : 1;
  for (int nth = GetParam(); nth <= 50; nth += 5 * kStep)
    for (const auto& [nodes, gpus] : {std::pair{3, 2}, {2, 1}, {4, 1}})
      for (const LinkOrder order : {LinkOrder::kInOrder, LinkOrder::kReordered}) {
        SCOPED_TRACE("write " + std::to_string(nth) + " of " + std::to_string(nodes) + "x" +
                     std::to_string(gpus) + (order == LinkOrder::kInOrder ? "" : " reordered"));
        ClusterOptions options = cluster_of(nodes, gpus);
        options.loopback.order = order;
        options.loopback.seed = static_cast<uint64_t>(nth);
        options.loopback.fail_after = nth;
        expect_ends(seconds(30), [options] {
          Ranks ranks(options);
          PlanOnRanks plan(ranks, kShape, {.chunk_rows = 16});
          const Status status = launch_until_failure(ranks, plan, 16);
          expect_error(status, Code::kPeerFailed, {"rank"});
          for (size_t r = 0; r < ranks.size(); ++r)
            expect_error(ranks.contexts[r].synchronize(ranks.streams[r].handle()),
                         Code::kPeerFailed, {"rank"});
        });
        ASSERT_FALSE(HasFatalFailure());
      }
}

INSTANTIATE_TEST_SUITE_P(Faults, FailingNetwork, ::testing::Range(0, 5));

TEST(Faults, StayForEveryRankAndOperatorCall) {
  const std::unique_ptr<Ranks> ranks = broken_ranks();
  const std::string first = ranks->synchronize().to_string();
  for (int again = 0; again < 3; ++again)
    for (size_t r = 0; r < ranks->size(); ++r) {
      EXPECT_EQ(ranks->contexts[r].synchronize(ranks->streams[r].handle()).to_string(), first);
      EXPECT_EQ(AllGatherGemm::create(ranks->contexts[r], kShape).status().to_string(), first);
    }
}

TEST(Faults, StayForRunsOfPlansThatWereMadeBefore) {
  ClusterOptions options = cluster_of(2, 2);
  options.loopback.fail_after = 0;
  Ranks ranks(options);
  PlanOnRanks failing(ranks, kShape), other(ranks, kShape);
  (void)failing.launch();
  const Status end = ranks.synchronize();
  EXPECT_EQ(end.code(), Code::kPeerFailed);
  for (size_t r = 0; r < ranks.size(); ++r) {
    EXPECT_EQ(failing[r].run(ranks.streams[r]).to_string(), end.to_string());
    EXPECT_EQ(other[r].run(ranks.streams[r]).to_string(), end.to_string());
  }
}

/// What helps to find out what happened still works; what would launch does not.
TEST(Faults, LeaveMemoryAndStatisticsUsable) {
  const std::unique_ptr<Ranks> ranks = broken_ranks();
  Context& context = ranks->contexts[0];
  EXPECT_EQ(AllGatherGemm::create(context, kShape).status().code(), Code::kPeerFailed);
  expect_ok(context.allocate(64).status());
  expect_ok(context.statistics().status());
  char one = 0, other = 1;
  expect_ok(context.upload(&one, &other, 1));
  EXPECT_EQ(one, 1);
}

TEST(Faults, OfOneClusterLeaveAnotherAlone) {
  Ranks healthy(cluster_of(2, 2));
  PlanOnRanks plan(healthy, kShape);
  expect_ok(plan.launch());
  const std::unique_ptr<Ranks> broken = broken_ranks();
  expect_ok(healthy.synchronize());
  plan.verify();
  plan.expect_right();
  Ranks fresh(cluster_of(2, 2));
  PlanOnRanks(fresh, kShape).expect_right();
}

/// Whatever the limit, a launch ends: well, or with a report of who waited for whom.
TEST(Faults, TinyTimeoutsEndEveryLaunch) {
  for (const int64_t us : {1, 10, 100, 1000, 10'000})
    for (const auto& [nodes, gpus] : {std::pair{1, 3}, {3, 2}})
      for (int round = 0; round < 3; ++round) {
        ClusterOptions options = cluster_of(nodes, gpus);
        options.timeout_us = us;
        options.contact_timeout_us = us;
        options.loopback.link_us = 20 * round;
        expect_ends(seconds(30), [options] {
          Ranks ranks(options);
          PlanOnRanks plan(ranks, kShape, {.chunk_rows = 16});
          const Status status = launch_until_failure(ranks, plan, 3);
          if (status) return plan.verify();
          EXPECT_TRUE(status.code() == Code::kTimeout || status.code() == Code::kPeerFailed)
              << status.to_string();
          EXPECT_NE(status.message().find("rank"), std::string::npos) << status.to_string();
        });
        ASSERT_FALSE(HasFatalFailure());
      }
}

/// A caller may launch late: what the other ranks wait for, rows and credit, may take as long as
/// the limit of contact. This sleeps because lateness is what it is about.
TEST(Faults, ARankThatIsLateByThreeTimeoutsIsWaitedFor) {
  constexpr auto kTimeout = std::chrono::milliseconds(500);
  for (const auto& [nodes, gpus] : {std::pair{1, 3}, {3, 1}}) {
    ClusterOptions options = cluster_of(nodes, gpus);
    options.timeout_us = std::chrono::microseconds(kTimeout).count();
    options.contact_timeout_us = 60'000'000;
    Ranks ranks(options);
    PlanOnRanks plan(ranks, kShape, {.chunk_rows = 16});
    for (size_t r = 0; r + 1 < ranks.size(); ++r)
      for (int launch = 0; launch < 3; ++launch) expect_ok(plan[r].run(ranks.streams[r]));
    std::this_thread::sleep_for(3 * kTimeout * (kSanitizer ? 5 : 1));
    for (int launch = 0; launch < 3; ++launch)
      expect_ok(plan[ranks.size() - 1].run(ranks.streams[ranks.size() - 1]));
    expect_ok(ranks.synchronize());
    plan.verify();
  }
}

/// The first of a link's writes never arrives, the next ones do: the rank has begun.
TEST(Faults, ARankThatStopsInALaunchIsNotWaitedForLikeALateOne) {
  ClusterOptions options = cluster_of(2, 1);
  options.timeout_us = 200'000;
  options.contact_timeout_us = 3'600'000'000;
  options.loopback.order = LinkOrder::kReordered;
  options.loopback.late_us = 1e12;
  expect_ends(seconds(30), [options] {
    Ranks ranks(options);
    PlanOnRanks plan(ranks, kShape, {.chunk_rows = 16});
    expect_error(launch_until_failure(ranks, plan, 1), Code::kTimeout, {"rank", "(timeout_us)"});
  });
}

/// More launches than the rank's network has room for, and a peer that never comes.
TEST(Faults, ARankAloneEndsInATimeoutHoweverMuchItEnqueued) {
  for (const auto& [nodes, gpus] : {std::pair{1, 2}, {2, 1}, {2, 2}}) {
    ClusterOptions options = cluster_of(nodes, gpus);
    options.timeout_us = 50'000;
    options.contact_timeout_us = 50'000;
    expect_ends(seconds(60), [options] {
      Ranks ranks(options);
      PlanOnRanks plan(ranks, kShape, {.chunk_rows = 16});
      for (int i = 0; i < 200; ++i)
        if (!plan[0].run(ranks.streams[0])) break;
      const Status status = ranks.contexts[0].synchronize(ranks.streams[0].handle());
      expect_error(status, Code::kTimeout,
                   {"rank 0 waited for", "of rank", "(contact_timeout_us)"});
    });
    ASSERT_FALSE(HasFatalFailure());
  }
}

}  // namespace
}  // namespace mkernel::test
