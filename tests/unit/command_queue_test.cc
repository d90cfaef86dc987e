#include <gtest/gtest.h>

#include <thread>
#include <vector>

#include "command/queue.h"

namespace mkernel {
namespace {

struct TestQueue {
  explicit TestQueue(uint32_t log2_capacity, uint64_t limit_ns = 60'000'000'000)
      : slots(size_t{1} << log2_capacity),
        queue(slots.data(), &producers, &tail, log2_capacity),
        dog{&abort, &claim, &fault, {limit_ns, limit_ns}, 0} {}

  std::vector<CommandSlot> slots;
  ProducerWords producers;
  uint64_t tail = 0;
  uint32_t abort = 0, claim = 0;
  FaultRecord fault{};
  CommandQueue queue;
  Watchdog dog;
};

/// Every field tells which command it belongs to, and none fits in 32 bits that should not.
Command command_number(uint32_t n) {
  return {.local_address = (uint64_t{n} << 40) + 1,
          .remote_address = ~(uint64_t{n} << 40),
          .bytes = ~n,
          .epoch = n * 3,
          .flag = n,
          .dst_rank = static_cast<uint16_t>(n)};
}

void expect_number(const Command& c, uint32_t n) {
  const Command want = command_number(n);
  ASSERT_EQ(c.flag, want.flag);
  ASSERT_EQ(c.local_address, want.local_address);
  ASSERT_EQ(c.remote_address, want.remote_address);
  ASSERT_EQ(c.bytes, want.bytes);
  ASSERT_EQ(c.epoch, want.epoch);
  ASSERT_EQ(c.dst_rank, want.dst_rank);
}

TEST(LapTag, IsNeverZeroAndDiffersFromTheLapBefore) {
  for (uint64_t lap = 1; lap < 200'000; ++lap) {
    ASSERT_NE(lap_tag(lap), 0);
    ASSERT_NE(lap_tag(lap), lap_tag(lap - 1));
  }
  EXPECT_NE(lap_tag(~uint64_t{0}), 0);
}

TEST(CommandQueue, FieldsSurviveAtTheirExtremes) {
  TestQueue t(1);
  const Command extremes[] = {{0, 0, 0, 0, 0, 0},
                              {~uint64_t{0}, ~uint64_t{0}, ~0u, ~0u, ~0u, 0xffff},
                              {(uint64_t{1} << 32) + 1, (uint64_t{1} << 32) - 1, 1, 2, 3, 4}};
  uint64_t position = 0;
  for (const Command& want : extremes) {
    ASSERT_TRUE(t.queue.push(want, t.dog));
    Command c;
    ASSERT_TRUE(t.queue.read(position++, &c));
    t.queue.complete(position);
    EXPECT_EQ(c.local_address, want.local_address);
    EXPECT_EQ(c.remote_address, want.remote_address);
    EXPECT_EQ(c.bytes, want.bytes);
    EXPECT_EQ(c.epoch, want.epoch);
    EXPECT_EQ(c.flag, want.flag);
    EXPECT_EQ(c.dst_rank, want.dst_rank);
  }
}

TEST(CommandQueue, ZeroedQueueIsEmptyInEveryLap) {
  TestQueue t(2);
  Command c;
  for (uint64_t position = 0; position < 4 * 70'000; ++position) {
    ASSERT_FALSE(t.queue.read(position, &c)) << position;
  }
}

TEST(CommandQueue, LapTagsWrapWithoutLosingOrRepeatingACommand) {
  TestQueue t(1);
  for (uint32_t n = 0; n < 2 * 70'000; ++n) {
    Command c;
    ASSERT_FALSE(t.queue.read(n, &c)) << "command of an earlier lap at " << n;
    ASSERT_TRUE(t.queue.push(command_number(n), t.dog));
    ASSERT_TRUE(t.queue.read(n, &c));
    expect_number(c, n);
    t.queue.complete(n + 1);
  }
}

TEST(CommandQueue, SpaceComesBackAtCompletionNotAtRead) {
  TestQueue t(1, 20'000'000);
  ASSERT_TRUE(t.queue.push(command_number(0), t.dog));
  ASSERT_TRUE(t.queue.push(command_number(1), t.dog));
  Command c;
  ASSERT_TRUE(t.queue.read(0, &c));
  ASSERT_TRUE(t.queue.read(1, &c));
  // Full, although all was read: the producer gives up at the watchdog's limit and says where.
  EXPECT_FALSE(t.queue.push(command_number(2), t.dog));
  EXPECT_EQ(t.fault.place, Place::kQueueSpace);
  EXPECT_EQ(t.fault.peer, 2u);
  EXPECT_EQ(t.fault.chunk, 2u);
  ASSERT_TRUE(t.queue.read(0, &c));
  expect_number(c, 0);
}

TEST(CommandQueue, ManyProducersOverManyLapsLoseNothing) {
  constexpr uint32_t kProducers = 4, kEach = 5000;
  TestQueue t(3);
  std::vector<std::thread> producers;
  for (uint32_t p = 0; p < kProducers; ++p) {
    producers.emplace_back([&t, p] {
      for (uint32_t i = 0; i < kEach; ++i) {
        ASSERT_TRUE(t.queue.push(command_number(p * kEach + i), t.dog));
      }
    });
  }
  std::vector<uint32_t> next(kProducers);
  for (uint64_t position = 0; position < kProducers * kEach; ++position) {
    Command c;
    while (!t.queue.read(position, &c)) std::this_thread::yield();
    expect_number(c, c.flag);
    // What one producer pushed stays in its order.
    ASSERT_EQ(c.flag % kEach, next.at(c.flag / kEach)++);
    // In steps, so that producers find the queue full most of the time.
    if (position % 3 == 0) t.queue.complete(position + 1);
  }
  t.queue.complete(kProducers * kEach);
  for (std::thread& p : producers) p.join();
  for (const uint32_t n : next) EXPECT_EQ(n, kEach);
}

}  // namespace
}  // namespace mkernel
