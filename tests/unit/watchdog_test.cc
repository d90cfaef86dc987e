#include "core/watchdog.h"

#include <gtest/gtest.h>

#include <limits>
#include <utility>

namespace mkernel {
namespace {

constexpr WaitLimits kLimits{.progress_ns = 100, .contact_ns = 1000};
constexpr uint64_t kNever = std::numeric_limits<uint64_t>::max();

/// When, looking at every step of time, a wait is over for one who is heard from `heard_ns` on.
uint64_t ends_at(uint64_t heard_ns, uint64_t step_ns = 1) {
  constexpr uint64_t kStartNs = kNever - 50;  // clocks may wrap
  Patience patience{kStartNs};
  uint64_t ns = 0;
  while (!patience.is_over(kStartNs + ns, kLimits, [&] { return ns >= heard_ns; })) ns += step_ns;
  return ns;
}

TEST(Patience, OneWhoHadBegunGetsTheLimitOfProgress) { EXPECT_EQ(ends_at(0), 101u); }

TEST(Patience, OneWhoIsNeverHeardGetsTheLimitOfContact) { EXPECT_EQ(ends_at(kNever), 1001u); }

TEST(Patience, OneWhoIsLateGetsTheLimitOfProgressFromThenOn) {
  for (const uint64_t late_ns : {60, 101, 300, 999}) EXPECT_EQ(ends_at(late_ns), late_ns + 101);
}

TEST(Patience, NobodyGetsLessThanHalfOfTheLimitAfterItBegan) {
  for (uint64_t late_ns = 0; late_ns <= 1000; ++late_ns) {
    EXPECT_GE(ends_at(late_ns), late_ns + 50) << late_ns;
    EXPECT_LE(ends_at(late_ns), late_ns + 101) << late_ns;
  }
}

TEST(Patience, ItEndsHoweverSeldomItIsAsked) {
  for (const uint64_t step_ns : {7, 90, 150, 5000}) {
    EXPECT_LE(ends_at(0, step_ns), 100 + step_ns);
    EXPECT_LE(ends_at(kNever, step_ns), 1000 + step_ns);
  }
}

TEST(Patience, ItDoesNotAskBeforeHalfOfTheLimitIsOver) {
  Patience patience{0};
  bool asked = false;
  const auto heard = [&] { return asked = true; };
  EXPECT_FALSE(patience.is_over(50, kLimits, heard));
  EXPECT_FALSE(asked);
  EXPECT_FALSE(patience.is_over(51, kLimits, heard));
  EXPECT_TRUE(asked);
}

TEST(Watchdog, ReportSaysWhichLimitItWas) {
  for (const auto& [heard, limit] : {std::pair{true, Limit::kProgress}, {false, Limit::kContact}}) {
    uint32_t abort = 0, claim = 0;
    FaultRecord fault{};
    const Watchdog dog{&abort, &claim, &fault, {1'000'000, 2'000'000}, 4};
    const auto result = dog.wait(
        {Place::kChunkArrived, 2, 7}, 5, [] { return 3u; }, [heard = heard] { return heard; });
    EXPECT_FALSE(result.ok);
    EXPECT_EQ(abort, 1u);
    EXPECT_EQ(fault.tripped, 1u);
    EXPECT_EQ(fault.limit, limit);
    EXPECT_EQ(fault.rank, 4u);
    EXPECT_EQ(fault.peer, 2u);
    EXPECT_EQ(fault.chunk, 7u);
    EXPECT_EQ(fault.expected, 5u);
    EXPECT_EQ(fault.seen, 3u);
  }
}

}  // namespace
}  // namespace mkernel
