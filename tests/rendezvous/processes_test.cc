// Groups whose ranks are processes: what the others learn when one is killed, or stands still.
#include <gtest/gtest.h>

#include <csignal>
#include <string>
#include <thread>
#include <vector>

#include "rendezvous/child_ranks.h"
#include "rendezvous/groups.h"

namespace mkernel::test {
namespace {

/// Joins, and tells of the fault that ends a barrier for which not all ranks come.
void wait_in_vain(const RendezvousOptions& options, const ChildRanks::Say& say, uint32_t victim) {
  const auto group = ProcessGroup::join(options);
  if (!group) return say(group.status().message());
  say((*group)->barrier("start", kLongUs) ? "joined" : "no start");
  if (options.rank == victim) pause();
  const Status status = (*group)->barrier("never", kLongUs);
  say(status.message() == (*group)->fault().message() ? status.message() : "two stories");
}

/// What all ranks but the victim say after it got the signal; and that they say the same.
std::string fault_after(int number, uint32_t victim, const std::vector<RendezvousOptions>& options,
                        pid_t* victim_pid) {
  ChildRanks ranks(options, [&](const RendezvousOptions& o, const ChildRanks::Say& say) {
    wait_in_vain(o, say, victim);
  });
  for (size_t i = 0; i < options.size(); ++i) EXPECT_EQ(ranks.line_of(i), "joined");
  ranks.signal(victim, number);
  *victim_pid = ranks.pid(victim);
  std::string text;
  for (uint32_t i = 0; i < options.size(); ++i) {
    if (i == victim) continue;
    const std::string line = ranks.line_of(i);
    if (text.empty()) text = line;
    EXPECT_EQ(line, text) << "of rank " << i;
  }
  return text;
}

std::vector<RendezvousOptions> impatient_options(uint32_t world) {
  std::vector<RendezvousOptions> options = options_of(world);
  for (RendezvousOptions& o : options) {
    o.silence_limit_us = 2'000'000;
    o.heartbeat_us = 100'000;
  }
  return options;
}

// The silence limit of these two is so long that only the closed connection can tell.
class KilledRank : public testing::TestWithParam<uint32_t> {};

TEST_P(KilledRank, IsNamedToEverybody) {
  pid_t pid = 0;
  const std::string text = fault_after(SIGKILL, GetParam(), options_of(4), &pid);
  EXPECT_TRUE(text.starts_with("rank " + std::to_string(GetParam()) + " (host ")) << text;
  EXPECT_NE(text.find(", pid " + std::to_string(pid) + ") died"), std::string::npos) << text;
}

INSTANTIATE_TEST_SUITE_P(Ranks, KilledRank, testing::Values(0, 2));

class StoppedRank : public testing::TestWithParam<uint32_t> {};

TEST_P(StoppedRank, IsNamedToEverybodyWhenTheLimitIsOver) {
  pid_t pid = 0;
  const std::string text = fault_after(SIGSTOP, GetParam(), impatient_options(3), &pid);
  EXPECT_TRUE(text.starts_with("rank " + std::to_string(GetParam()) + " (host ")) << text;
  EXPECT_NE(text.find(", pid " + std::to_string(pid) +
                      ") fell silent: nothing was heard of it "
                      "for 2 s"),
            std::string::npos)
      << text;
}

INSTANTIATE_TEST_SUITE_P(Ranks, StoppedRank, testing::Values(0, 1));

TEST(Processes, WhoWasStoppedLearnsThatItWentOnWithoutIt) {
  ChildRanks ranks(impatient_options(3), [](const RendezvousOptions& o, const auto& say) {
    const auto group = value_of(ProcessGroup::join(o));
    say(group->barrier("start", kLongUs) ? "joined" : "no start");
    // Rank 0 never comes, and stays to tell the one who was away.
    if (o.rank != 0) say(group->barrier("never", kLongUs).message());
    pause();
  });
  for (size_t i = 0; i < 3; ++i) EXPECT_EQ(ranks.line_of(i), "joined");
  ranks.signal(2, SIGSTOP);
  const std::string text = ranks.line_of(1);  // it has been given up
  ranks.signal(2, SIGCONT);
  EXPECT_EQ(ranks.line_of(2), text);
  EXPECT_TRUE(text.starts_with("rank 2 (host ")) << text;
  EXPECT_NE(text.find("fell silent"), std::string::npos) << text;
}

TEST(Processes, ExitWithoutLeavingIsAFaultAndWithLeavingIsNone) {
  ChildRanks ranks(options_of(3), [](const RendezvousOptions& o, const auto& say) {
    auto group = value_of(ProcessGroup::join(o));
    if (o.rank == 2) {
      group->leave();
      _exit(0);
    }
    const Status left = group->barrier("a", kLongUs);
    say(group->fault() ? left.message() : "fault: " + group->fault().message());
    if (o.rank == 1) pause();
    while (group->fault()) std::this_thread::yield();
    say(group->fault().message());
  });
  EXPECT_NE(ranks.line_of(0).find("has left, and \"a\" needs it"), std::string::npos);
  EXPECT_NE(ranks.line_of(1).find("has left, and \"a\" needs it"), std::string::npos);
  ranks.signal(1, SIGTERM);  // it ends, and no destructor runs
  const std::string text = ranks.line_of(0);
  EXPECT_TRUE(text.starts_with("rank 1 (host ")) << text;
}

}  // namespace
}  // namespace mkernel::test
