#include <gtest/gtest.h>

#include <map>
#include <random>
#include <vector>

#include "proxy/batcher.h"
#include "transport/test_ranks.h"

namespace mkernel {
namespace {

PendingCommand to(uint16_t rank, uint64_t position) { return {position, {0, 0, 0, 0, 0, rank}}; }

std::vector<PendingCommand> take(Batcher& batcher, size_t limit) {
  std::vector<PendingCommand> batch(limit);
  batch.resize(batcher.take(batch));
  return batch;
}

TEST(Batcher, BatchHasOneDestinationAndAtMostTheLimit) {
  Batcher batcher(3, 6);
  for (uint64_t i = 0; i < 5; ++i) batcher.add(to(1, i));
  batcher.add(to(2, 5));
  EXPECT_EQ(take(batcher, 4).size(), 4u);
  const auto other = take(batcher, 4);
  ASSERT_EQ(other.size(), 1u);
  EXPECT_EQ(other[0].command.dst_rank, 2);
  EXPECT_EQ(take(batcher, 4).size(), 1u);
  EXPECT_TRUE(batcher.empty());
}

TEST(Batcher, PartialBatchGoesAtOnce) {
  Batcher batcher(1, 1);
  batcher.add(to(0, 0));
  EXPECT_EQ(take(batcher, 8).size(), 1u);
}

TEST(Batcher, BusyDestinationDoesNotStarveTheOthers) {
  Batcher batcher(2, 128);
  for (uint64_t i = 0; i < 100; ++i) batcher.add(to(0, i));
  batcher.add(to(1, 100));
  EXPECT_EQ(take(batcher, 1)[0].command.dst_rank, 0);
  EXPECT_EQ(take(batcher, 1)[0].command.dst_rank, 1);
}

TEST(Batcher, EveryCommandComesOutOnceInTheOrderOfItsDestination) {
  const uint64_t seed = test::base_seed();
  SCOPED_TRACE("seed " + std::to_string(seed));
  std::mt19937_64 random(seed);
  constexpr uint32_t kCapacity = 32;
  Batcher batcher(5, kCapacity);
  std::map<uint16_t, uint64_t> last;
  uint64_t added = 0, taken = 0;
  while (taken < 20'000) {
    if (added < 20'000 && added - taken < kCapacity && random() % 2 == 0) {
      batcher.add(to(static_cast<uint16_t>(random() % 5), ++added));
    } else if (!batcher.empty()) {
      for (const PendingCommand& p : take(batcher, 1 + random() % 7)) {
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
