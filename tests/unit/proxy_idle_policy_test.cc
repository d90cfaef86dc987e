#include <gtest/gtest.h>

#include "proxy/idle_policy.h"

namespace mkernel {
namespace {

constexpr uint32_t kAwake = IdlePolicy::kSpins + IdlePolicy::kYields;

/// The rest after so many passes without work, in a row.
Rest idle(IdlePolicy& policy, uint32_t passes, bool in_flight = false) {
  Rest rest = Rest::kNone;
  for (uint32_t i = 0; i < passes; ++i) rest = policy.after_pass(false, in_flight);
  return rest;
}

TEST(IdlePolicy, RestsMoreTheLongerThereIsNothingToDo) {
  IdlePolicy policy;
  EXPECT_EQ(idle(policy, IdlePolicy::kSpins), Rest::kNone);
  EXPECT_EQ(idle(policy, 1), Rest::kYield);
  EXPECT_EQ(idle(policy, IdlePolicy::kYields - 2), Rest::kYield);
  EXPECT_EQ(idle(policy, 1), Rest::kSleep);
  EXPECT_EQ(idle(policy, 1'000'000), Rest::kSleep);
}

TEST(IdlePolicy, WorkWakesItFully) {
  IdlePolicy policy;
  for (int round = 0; round < 3; ++round) {
    EXPECT_EQ(idle(policy, kAwake), Rest::kSleep);
    EXPECT_EQ(policy.after_pass(true, false), Rest::kNone);
    EXPECT_EQ(idle(policy, IdlePolicy::kSpins - 1), Rest::kNone);
  }
}

TEST(IdlePolicy, StaysAwakeWhileWritesAreInFlight) {
  IdlePolicy policy;
  EXPECT_EQ(idle(policy, 10 * kAwake, true), Rest::kYield);
  EXPECT_EQ(policy.after_pass(false, false), Rest::kSleep);
  EXPECT_EQ(policy.after_pass(false, true), Rest::kYield);
}

TEST(IdlePolicy, WorkWithoutEndIsNeverDelayed) {
  IdlePolicy policy;
  for (uint32_t i = 0; i < 10 * kAwake; ++i) {
    ASSERT_EQ(policy.after_pass(i % IdlePolicy::kSpins == 0, i % 2 == 0), Rest::kNone);
  }
}

/// The sleep after so many sleeps in a row that cost as much.
std::chrono::nanoseconds settled_sleep(uint64_t cost_ns) {
  IdlePolicy policy;
  uint64_t used_ns = 0;
  std::chrono::nanoseconds sleep{};
  for (uint32_t i = 0; i <= IdlePolicy::kSleepsPerLook; ++i) {
    sleep = policy.sleep([&] { return used_ns; });
    used_ns += cost_ns;
  }
  return sleep;
}

TEST(IdlePolicy, SleepsLongerWhereWakingUpIsDear) {
  EXPECT_EQ(settled_sleep(1'000), IdlePolicy::kShortestSleep);
  EXPECT_EQ(settled_sleep(8'000).count(), 176'000);
  EXPECT_EQ(settled_sleep(1'000'000), IdlePolicy::kLongestSleep);
}

TEST(IdlePolicy, WorkIsNoCostOfSleeping) {
  IdlePolicy policy;
  uint64_t used_ns = 0;
  std::chrono::nanoseconds sleep{};
  for (uint32_t i = 0; i <= 3 * IdlePolicy::kSleepsPerLook; ++i) {
    sleep = policy.sleep([&] { return used_ns; });
    if (i % 16 != 15) continue;
    used_ns += 1'000'000;  // of the work that it met
    policy.after_pass(true, false);
  }
  EXPECT_EQ(sleep, IdlePolicy::kShortestSleep);
}

}  // namespace
}  // namespace mkernel
