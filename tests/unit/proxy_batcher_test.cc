#include <gtest/gtest.h>

#include <map>
#include <random>

#include "proxy/batcher.h"
#include "transport/test_ranks.h"

namespace mkernel {
namespace {

PendingCommand to(uint16_t rank, uint64_t position) { return {position, {0, 0, 0, 0, 0, rank}}; }

TEST(Batcher, BatchHasOneDestinationAndAtMostTheLimit) {
  Batcher batcher(3);
  for (uint64_t i = 0; i < 5; ++i) batcher.add(to(1, i));
  batcher.add(to(2, 5));
  EXPECT_EQ(batcher.take(4).size(), 4u);
  const auto other = batcher.take(4);
  ASSERT_EQ(other.size(), 1u);
  EXPECT_EQ(other[0].command.dst_rank, 2);
  EXPECT_EQ(batcher.take(4).size(), 1u);
  EXPECT_TRUE(batcher.empty());
}

TEST(Batcher, PartialBatchGoesAtOnce) {
  Batcher batcher(1);
  batcher.add(to(0, 0));
  EXPECT_EQ(batcher.take(8).size(), 1u);
}

TEST(Batcher, BusyDestinationDoesNotStarveTheOthers) {
  Batcher batcher(2);
  for (uint64_t i = 0; i < 100; ++i) batcher.add(to(0, i));
  batcher.add(to(1, 100));
  EXPECT_EQ(batcher.take(1)[0].command.dst_rank, 0);
  EXPECT_EQ(batcher.take(1)[0].command.dst_rank, 1);
}

TEST(Batcher, EveryCommandComesOutOnceInTheOrderOfItsDestination) {
  const uint64_t seed = test::base_seed();
  SCOPED_TRACE("seed " + std::to_string(seed));
  std::mt19937_64 random(seed);
  Batcher batcher(5);
  std::map<uint16_t, uint64_t> last;
  uint64_t added = 0, taken = 0;
  while (taken < 20'000) {
    if (added < 20'000 && random() % 2 == 0) {
      batcher.add(to(static_cast<uint16_t>(random() % 5), ++added));
    } else if (!batcher.empty()) {
      for (const PendingCommand& p : batcher.take(1 + random() % 7)) {
        ASSERT_GT(p.position, last[p.command.dst_rank]);
        last[p.command.dst_rank] = p.position;
        ++taken;
      }
    }
  }
  EXPECT_TRUE(batcher.empty());
}

}  // namespace
}  // namespace mkernel
