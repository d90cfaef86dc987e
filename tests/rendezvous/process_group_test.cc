// Groups whose ranks are threads of this process: collectives, faults, leaving.
#include "rendezvous/process_group.h"

#include <gtest/gtest.h>

#include <atomic>
#include <mutex>
#include <set>
#include <string>
#include <vector>

#include "rendezvous/groups.h"
#include "rendezvous/payload.h"

namespace mkernel::test {
namespace {

void expect_gathers(const Groups& groups, const std::string& what) {
  in_threads(groups.size(), [&](size_t i) {
    const std::vector<std::string> all =
        value_of(groups[i]->all_gather(what, what + " of " + std::to_string(i), kLongUs));
    ASSERT_EQ(all.size(), groups.size());
    for (size_t j = 0; j < all.size(); ++j) EXPECT_EQ(all[j], what + " of " + std::to_string(j));
  });
}

/// What each rank's barrier came to; `what` and the limit by rank.
template <class What>
std::vector<Status> barriers(const Groups& groups, What what, int64_t timeout_us = kLongUs) {
  std::vector<Status> statuses(groups.size());
  in_threads(groups.size(),
             [&](size_t i) { statuses[i] = groups[i]->barrier(what(i), timeout_us); });
  return statuses;
}

class GroupsOf : public testing::TestWithParam<uint32_t> {};

TEST_P(GroupsOf, JoinGatherAndLeave) {
  const Groups groups = join_all(options_of(GetParam()));
  for (int i = 0; i < 3; ++i) expect_gathers(groups, "part " + std::to_string(i));
  in_threads(groups.size(), [&](size_t i) {
    EXPECT_EQ(groups[i]->rank(), i);
    EXPECT_EQ(groups[i]->world(), groups.size());
    EXPECT_EQ(groups[i]->ranks_of_this_host().size(), groups.size());
    EXPECT_TRUE(groups[i]->barrier("end", kLongUs));
    groups[i]->leave();
    EXPECT_TRUE(groups[i]->fault());
  });
}

INSTANTIATE_TEST_SUITE_P(Ranks, GroupsOf, testing::Values(1, 2, 5, 80));

TEST(ProcessGroup, KnowsHostsAndNames) {
  std::vector<RendezvousOptions> options = options_of(4);
  options[1].host_id = options[3].host_id = "another";
  const Groups groups = join_all(options);
  EXPECT_EQ(groups[0]->ranks_of_this_host(), (std::vector<uint32_t>{0, 2}));
  EXPECT_EQ(groups[3]->ranks_of_this_host(), (std::vector<uint32_t>{1, 3}));
  EXPECT_EQ(groups[2]->host_of(1), "another");
  EXPECT_NE(groups[2]->name_of(1).find(", pid " + std::to_string(getpid()) + ")"),
            std::string::npos)
      << groups[2]->name_of(1);
}

TEST(ProcessGroup, TwoGroupsInOneProcessDoNotMeet) {
  const Groups a = join_all(options_of(3, "a")), b = join_all(options_of(2, "b"));
  expect_gathers(a, "a");
  expect_gathers(b, "b");
  a[1]->report_fault({Code::kInternal, "broken"});
  EXPECT_FALSE(a[2]->barrier("x", kLongUs));
  expect_gathers(b, "b again");
}

TEST(ProcessGroup, GathersTheLongestParts) {
  const Groups groups = join_all(options_of(3));
  in_threads(3, [&](size_t i) {
    const std::string mine(kMaxContributionBytes, static_cast<char>('a' + i));
    const std::vector<std::string> all = value_of(groups[i]->all_gather("long", mine, kLongUs));
    for (size_t j = 0; j < 3; ++j) {
      EXPECT_EQ(all[j].find_first_not_of(static_cast<char>('a' + j)), std::string::npos);
      EXPECT_EQ(all[j].size(), kMaxContributionBytes);
    }
  });
}

TEST(ProcessGroup, WhatIsTooLongIsRefusedAndHarmsNobody) {
  const Groups groups = join_all(options_of(2));
  const auto refused =
      groups[0]->all_gather("x", std::string(kMaxContributionBytes + 1, 'a'), 1000);
  EXPECT_EQ(refused.status().code(), Code::kInvalidArgument);
  EXPECT_NE(refused.status().message().find("1048577, at most 1048576"), std::string::npos)
      << refused.status().message();
  EXPECT_EQ(groups[0]->barrier(std::string(kMaxWhatBytes + 1, 'x'), 1000).code(),
            Code::kInvalidArgument);
  EXPECT_EQ(groups[0]->barrier("x", 0).code(), Code::kInvalidArgument);
  expect_gathers(groups, "as if nothing had been");
}

TEST(ProcessGroup, TwoCollectivesOfARankAtOnceAreRefused) {
  const Groups groups = join_all(options_of(2));
  // Whichever comes second; the first waits for rank 1.
  std::atomic<int> num_refused = 0;
  in_threads(3, [&](size_t i) {
    if (i == 2) {
      while (num_refused == 0) std::this_thread::yield();
      EXPECT_TRUE(groups[1]->barrier("b", kLongUs));
    } else if (groups[0]->barrier("b", kLongUs).code() == Code::kInvalidArgument) {
      ++num_refused;
    }
  });
  EXPECT_EQ(num_refused, 1);
}

TEST(ProcessGroup, RanksThatDisagreeAreAllTold) {
  const Groups groups = join_all(options_of(3));
  const auto statuses = barriers(groups, [](size_t i) { return i == 1 ? "b" : "a"; });
  for (const Status& status : statuses) {
    EXPECT_EQ(status.code(), Code::kInvalidArgument);
    EXPECT_EQ(status.message(), statuses[0].message());
    EXPECT_NE(status.message().find("is at \"b\""), std::string::npos) << status.message();
    EXPECT_NE(status.message().find("rank 1 (host "), std::string::npos) << status.message();
  }
  expect_gathers(groups, "the next one");
}

TEST(ProcessGroup, WhoDoesNotComeIsNamedAndMayComeToTheNext) {
  const Groups groups = join_all(options_of(3));
  in_threads(2, [&](size_t i) {
    const Status status = groups[i]->barrier("b", 50'000);
    EXPECT_EQ(status.code(), Code::kTimeout);
    EXPECT_NE(status.message().find("rank 2 (host "), std::string::npos) << status.message();
    EXPECT_NE(status.message().find("did not come to \"b\" within 50 ms"), std::string::npos)
        << status.message();
  });
  EXPECT_EQ(groups[2]->barrier("b", kLongUs).code(), Code::kTimeout) << "it is the same everywhere";
  expect_gathers(groups, "the next one");
}

TEST(ProcessGroup, WhoLeavesIsNoFaultButCannotBeWaitedFor) {
  const Groups groups = join_all(options_of(3));
  groups[1]->leave();
  for (const size_t i : {0, 2}) {
    const Status status = groups[i]->barrier("b", kLongUs);
    EXPECT_EQ(status.code(), Code::kPeerFailed);
    EXPECT_NE(status.message().find("has left, and \"b\" needs it"), std::string::npos)
        << status.message();
    EXPECT_TRUE(groups[i]->fault()) << groups[i]->fault().message();
  }
  EXPECT_EQ(groups[1]->barrier("b", kLongUs).code(), Code::kUnavailable);
}

TEST(ProcessGroup, LeavingEndsWhatOthersWaitFor) {
  const Groups groups = join_all(options_of(3));
  in_threads(3, [&](size_t i) {
    if (i == 2) return groups[i]->leave();
    EXPECT_EQ(groups[i]->barrier("b", kLongUs).code(), Code::kPeerFailed);
  });
}

TEST(ProcessGroup, RankZeroMayLeaveFirst) {
  Groups groups = join_all(options_of(3));
  groups[0].reset();
  for (const size_t i : {1, 2}) {
    const Status status = groups[i]->barrier("b", kLongUs);
    EXPECT_EQ(status.code(), Code::kPeerFailed);
    EXPECT_NE(status.message().find("has left"), std::string::npos) << status.message();
    EXPECT_TRUE(groups[i]->fault()) << groups[i]->fault().message();
    groups[i]->report_fault({Code::kInternal, "broken"});
    EXPECT_EQ(groups[i]->fault().message(), "broken") << "nobody else is there to agree with";
  }
}

/// Waits for on_fault.
class Told {
 public:
  explicit Told(ProcessGroup& group) {
    group.on_fault([this](const Status& status) {
      const std::scoped_lock lock(mutex_);
      status_ = status;
      ++count_;
      changed_.notify_all();
    });
  }
  std::string wait() {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [this] { return count_ > 0; });
    EXPECT_EQ(count_, 1);
    return status_.message();
  }

 private:
  std::mutex mutex_;
  std::condition_variable changed_;
  Status status_;
  int count_ = 0;
};

TEST(ProcessGroup, ReportReachesEverybodyAndEndsCollectives) {
  const Groups groups = join_all(options_of(4));
  in_threads(4, [&](size_t i) {
    Told told(*groups[i]);
    if (i == 2) {
      groups[i]->report_fault({Code::kTimeout, "waited for chunk 7"});
    } else {
      EXPECT_EQ(groups[i]->barrier("never", kLongUs).code(), Code::kTimeout);
    }
    const std::string text = told.wait();
    EXPECT_TRUE(text.starts_with("rank 2 (host ")) << text;
    EXPECT_TRUE(text.ends_with(") reported: waited for chunk 7")) << text;
    EXPECT_EQ(groups[i]->fault().message(), text);
    EXPECT_EQ(groups[i]->barrier("after", kLongUs).message(), text) << "it stays";
    groups[i]->on_fault({});
  });
}

TEST(ProcessGroup, OfManyReportsAllRanksTakeTheSame) {
  for (int round = 0; round < 10; ++round) {
    const Groups groups = join_all(options_of(5));
    std::mutex mutex;
    std::set<std::string> texts;
    in_threads(5, [&](size_t i) {
      Told told(*groups[i]);
      groups[i]->report_fault({Code::kInternal, "report " + std::to_string(i)});
      const std::string text = told.wait();
      groups[i]->on_fault({});
      const std::scoped_lock lock(mutex);
      texts.insert(text);
    });
    EXPECT_EQ(texts.size(), 1U) << *texts.begin() << " and " << *texts.rbegin();
  }
}

TEST(ProcessGroup, WhoAsksAfterTheFaultIsToldAtOnce) {
  const Groups groups = join_all(options_of(2));
  groups[0]->report_fault({Code::kInternal, "broken"});
  EXPECT_FALSE(groups[1]->barrier("b", kLongUs));
  int count = 0;
  groups[1]->on_fault([&](const Status& status) { count += status ? 0 : 1; });
  EXPECT_EQ(count, 1);
}

TEST(ProcessGroup, GroupOfOneHasFaultsToo) {
  const Groups groups = join_all(options_of(1));
  int count = 0;
  groups[0]->on_fault([&](const Status&) { ++count; });
  groups[0]->report_fault(Status::ok());
  EXPECT_TRUE(groups[0]->fault());
  groups[0]->report_fault({Code::kInternal, "broken"});
  groups[0]->report_fault({Code::kInternal, "again"});
  EXPECT_EQ(count, 1);
  EXPECT_EQ(groups[0]->barrier("b", 1).message(), "broken");
}

// Even if ranks come to the new one while others are still in the old one, by the same name.
TEST(ProcessGroup, NewGroupsWorkAtTheSameAddress) {
  std::vector<RendezvousOptions> options = options_of(3);
  join_all(options);
  options[0].listener = nullptr;  // it served one group
  in_threads(3, [&](size_t i) {
    for (uint32_t round = 0; round < 20; ++round) {
      const auto group = value_of(ProcessGroup::join(options[i]));
      EXPECT_TRUE(group->barrier("a", kLongUs));
      if (round % 2 == 0) continue;  // all leave
      if (i == round % 3) group->report_fault({Code::kInternal, "broken"});
      EXPECT_EQ(group->barrier("b", kLongUs).code(), Code::kInternal);
    }
  });
}

}  // namespace
}  // namespace mkernel::test
