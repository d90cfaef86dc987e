// Groups whose ranks are threads of this process: joining, collectives, leaving, reported faults.
#include "rendezvous/process_group.h"

#include <gtest/gtest.h>

#include <atomic>
#include <string>
#include <vector>

#include "rendezvous/groups.h"

namespace mkernel::test {
namespace {

void expect_gathers(const Groups& groups, const std::string& what) {
  in_threads(groups.size(), [&](size_t i) {
    Result<std::vector<std::string>> all =
        groups[i]->all_gather(what, what + " of " + std::to_string(i), kLongUs);
    ASSERT_TRUE(all) << all.status().message();
    ASSERT_EQ(all->size(), groups.size());
    for (size_t j = 0; j < all->size(); ++j) {
      EXPECT_EQ((*all)[j], what + " of " + std::to_string(j));
    }
  });
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

}  // namespace
}  // namespace mkernel::test
