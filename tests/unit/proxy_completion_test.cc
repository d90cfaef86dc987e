#include <gtest/gtest.h>

#include <algorithm>
#include <random>
#include <vector>

#include "proxy/completion.h"
#include "transport/test_ranks.h"

namespace mkernel {
namespace {

constexpr uint64_t kCapacity = 8192;  // more than any test begins

TEST(Completion, PositionWaitsForAllBeforeIt) {
  Completion completion(kCapacity);
  for (int i = 0; i < 3; ++i) completion.begin(1);
  EXPECT_TRUE(completion.complete(Completion::first_write_id(2)));
  EXPECT_TRUE(completion.complete(Completion::first_write_id(1)));
  EXPECT_EQ(completion.completed(), 0u);
  EXPECT_TRUE(completion.complete(Completion::first_write_id(0)));
  EXPECT_EQ(completion.completed(), 3u);
  EXPECT_TRUE(completion.idle());
}

TEST(Completion, CommandOfTwoWritesWaitsForBoth) {
  Completion completion(kCapacity);
  completion.begin(2);
  EXPECT_TRUE(completion.complete(1));
  EXPECT_EQ(completion.completed(), 0u);
  EXPECT_FALSE(completion.idle());
  EXPECT_TRUE(completion.complete(0));
  EXPECT_EQ(completion.completed(), 1u);
}

TEST(Completion, WriteThatIsNotOutstandingIsRefused) {
  Completion completion(kCapacity);
  EXPECT_FALSE(completion.complete(0));
  completion.begin(1);
  completion.begin(2);
  EXPECT_FALSE(completion.complete(1)) << "the first command has one write";
  EXPECT_TRUE(completion.complete(2));
  EXPECT_FALSE(completion.complete(2)) << "one write must not stand for two";
  EXPECT_TRUE(completion.complete(0));
  EXPECT_FALSE(completion.complete(0)) << "it is past";
  EXPECT_FALSE(completion.complete(~uint64_t{0}));
  EXPECT_EQ(completion.completed(), 1u);
}

TEST(Completion, AnyOrderGivesTheSmallestIncompletePosition) {
  const uint64_t seed = test::base_seed();
  SCOPED_TRACE("seed " + std::to_string(seed));
  std::mt19937_64 random(seed);
  Completion completion(kCapacity);
  std::vector<uint64_t> outstanding;
  for (uint64_t position = 0; position < 5000; ++position) {
    const auto num_writes = static_cast<uint32_t>(1 + random() % 2);
    completion.begin(num_writes);
    for (uint32_t w = 0; w < num_writes; ++w) {
      outstanding.push_back(Completion::first_write_id(position) + w);
    }
    while (outstanding.size() > random() % 20) {
      std::swap(outstanding[random() % outstanding.size()], outstanding.back());
      ASSERT_TRUE(completion.complete(outstanding.back()));
      outstanding.pop_back();
    }
    uint64_t smallest = position + 1;
    for (const uint64_t id : outstanding) {
      smallest = std::min(smallest, Completion::position_of(id));
    }
    ASSERT_EQ(completion.completed(), smallest);
  }
}

}  // namespace
}  // namespace mkernel
