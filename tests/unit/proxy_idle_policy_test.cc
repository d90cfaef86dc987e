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

}  // namespace
}  // namespace mkernel
