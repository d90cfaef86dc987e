// The model of a network that loopback is: what it delays, reorders, stalls and breaks.
#include "network/loopback.h"

#include <gtest/gtest.h>

#include <array>
#include <chrono>
#include <random>

#include "core/sync.h"
#include "network/arrival.h"
#include "transport/test_ranks.h"

namespace mkernel::test {
namespace {

using Endpoints = std::vector<std::unique_ptr<Endpoint>>;

Write write_of(const TestRanks& ranks, uint32_t peer, uint64_t offset, uint64_t bytes,
               uint32_t value) {
  const uint64_t address = ranks.address() + offset;
  return {.kind = Write::Kind::kDataImmediate,
          .peer = peer,
          .local_address = address,
          .remote_address = address,
          .bytes = bytes,
          .value = value,
          .id = value};
}

std::vector<Event> poll_all(Endpoint& endpoint) {
  std::array<Event, 64> events;
  const size_t n = value_of(endpoint.poll(events));
  return {events.begin(), events.begin() + static_cast<std::ptrdiff_t>(n)};
}

/// Polls until one event has come.
Event next_event(Endpoint& endpoint) {
  std::array<Event, 1> event;
  while (value_of(endpoint.poll(event)) == 0) {
  }
  return event[0];
}

double us_since(std::chrono::steady_clock::time_point start) {
  return std::chrono::duration<double, std::micro>(std::chrono::steady_clock::now() - start)
      .count();
}

TEST(Loopback, NoWriteIsPlacedBeforeLatencyAndBandwidthAllow) {
  const TestRanks ranks(2, 4000);
  const Endpoints endpoints = value_of(create_loopback(
      {.link = {.link_gbs = 1e-3, .link_us = 2000, .stalled_ranks = {}}}, ranks.heap_of_rank));
  const auto start = std::chrono::steady_clock::now();
  // 2000 bytes at 1 MB/s take 2 ms, one after the other.
  for (uint32_t i = 1; i <= 2; ++i) {
    const Write w = write_of(ranks, 1, 0, 2000, i);
    ASSERT_TRUE(endpoints[0]->post({&w, 1}));
  }
  EXPECT_EQ(next_event(*endpoints[0]).id, 1u);
  EXPECT_GE(us_since(start), 4000);
  EXPECT_EQ(next_event(*endpoints[0]).id, 2u);
  EXPECT_GE(us_since(start), 6000);
}

TEST(Loopback, OneSlowLinkDoesNotHoldUpAnother) {
  const TestRanks ranks(3, 1 << 20);
  const Endpoints endpoints = value_of(
      create_loopback({.link = {.link_gbs = 1e-6, .stalled_ranks = {}}}, ranks.heap_of_rank));
  const Write large = write_of(ranks, 1, 0, 1 << 20, 1);  // 1000 s
  const Write empty = write_of(ranks, 2, 0, 0, 2);
  ASSERT_TRUE(endpoints[0]->post({&large, 1}));
  ASSERT_TRUE(endpoints[0]->post({&empty, 1}));
  EXPECT_EQ(next_event(*endpoints[0]).id, 2u);
  EXPECT_TRUE(poll_all(*endpoints[1]).empty());
}

/// Whether any of 32 writes overtook an earlier one; each must be whole when it arrives.
bool overtakes(const LoopbackOptions& link) {
  const TestRanks ranks(2, 32 * 512);
  const Endpoints endpoints = value_of(create_loopback({.link = link}, ranks.heap_of_rank));
  for (uint32_t i = 0; i < 32; ++i) {
    fill_pattern(ranks.data(0) + i * 512, 512, i);
    const Write w = write_of(ranks, 1, i * 512, 512, i);
    EXPECT_TRUE(endpoints[0]->post({&w, 1}));
  }
  bool any = false;
  for (uint32_t arrived = 0; arrived < 32;) {
    (void)poll_all(*endpoints[0]);
    for (const Event& e : poll_all(*endpoints[1])) {
      EXPECT_TRUE(has_pattern(ranks.data(1) + e.value * 512, 512, e.value));
      any |= e.value != arrived;
      ++arrived;
    }
  }
  return any;
}

TEST(Loopback, ArrivedChunkIsWholeWhileOthersOvertakeIt) {
  for (uint64_t seed = base_seed(); seed < base_seed() + 50; ++seed) {
    SCOPED_TRACE("seed " + std::to_string(seed));
    EXPECT_TRUE(overtakes({.order = LinkOrder::kReordered, .seed = seed, .stalled_ranks = {}}));
  }
}

TEST(Loopback, NothingOvertakesOnAnInOrderLink) { EXPECT_FALSE(overtakes({})); }

TEST(Loopback, LateWriteIsOvertakenByTheNext) {
  const TestRanks ranks(2, 128);
  const LoopbackOptions link{
      .order = LinkOrder::kReordered, .late_us = 20'000, .stalled_ranks = {}};
  const Endpoints endpoints = value_of(create_loopback({.link = link}, ranks.heap_of_rank));
  for (uint64_t id : {1u, 2u}) {
    const Write w = write_of(ranks, 1, 0, 64, id);
    ASSERT_TRUE(endpoints[0]->post({&w, 1}));
  }
  EXPECT_EQ(next_event(*endpoints[0]).id, 2u);
  EXPECT_EQ(next_event(*endpoints[0]).id, 1u);
}

TEST(Loopback, FlagOverAReorderedLinkCanOvertakeItsData) {
  // Why arrival.h uses immediates there: the model must show what goes wrong without them.
  bool overtook = false;
  for (uint64_t seed = base_seed(); seed < base_seed() + 100 && !overtook; ++seed) {
    const TestRanks ranks(2, 256);
    const Endpoints endpoints = value_of(create_loopback(
        {.link = {.order = LinkOrder::kReordered, .seed = seed, .stalled_ranks = {}}},
        ranks.heap_of_rank));
    fill_pattern(ranks.data(0), 256, 1);
    const ChunkWrites chunk = writes_of_chunk(ArrivalMethod::kFlagBehindData, [&] {
      Write w = write_of(ranks, 1, 0, 256, 9);
      w.flag = 3;
      return w;
    }());
    ASSERT_TRUE(endpoints[0]->post({chunk.writes.data(), chunk.count}));
    while (*ranks.flag(1, 3) != 9) (void)poll_all(*endpoints[0]);
    overtook = !has_pattern(ranks.data(1), 256, 1);
  }
  EXPECT_TRUE(overtook);
}

TEST(Loopback, FailedWriteIsReportedAsFailureAndBreaksItsLinkOnly) {
  for (const LinkOrder order : {LinkOrder::kInOrder, LinkOrder::kReordered}) {
    const TestRanks ranks(3, 3 * 64);
    const Endpoints endpoints = value_of(create_loopback(
        {.link = {.order = order, .stalled_ranks = {}, .fail_after = 0}}, ranks.heap_of_rank));
    fill_pattern(ranks.data(0), 3 * 64, 1);
    const Write failing = write_of(ranks, 1, 0, 64, 0);
    ASSERT_TRUE(endpoints[0]->post({&failing, 1}));
    EXPECT_EQ(next_event(*endpoints[0]).kind, Event::Kind::kFailed);
    const Write behind = write_of(ranks, 1, 64, 64, 1);
    ASSERT_TRUE(endpoints[0]->post({&behind, 1}));
    EXPECT_EQ(next_event(*endpoints[0]).kind, Event::Kind::kFailed);
    const Write elsewhere = write_of(ranks, 2, 128, 64, 2);
    ASSERT_TRUE(endpoints[0]->post({&elsewhere, 1}));
    EXPECT_EQ(next_event(*endpoints[0]).kind, Event::Kind::kCompleted);
    EXPECT_TRUE(poll_all(*endpoints[1]).empty());
    EXPECT_EQ(std::count(ranks.data(1), ranks.data(1) + 128, '\0'), 128);
    EXPECT_EQ(next_event(*endpoints[2]).kind, Event::Kind::kArrived);
  }
}

TEST(Loopback, ExactlyOneWriteFailsWhenTheNthOfTheFabricDoes) {
  const TestRanks ranks(2, 64);
  const Endpoints endpoints = value_of(
      create_loopback({.link = {.stalled_ranks = {}, .fail_after = 3}}, ranks.heap_of_rank));
  std::vector<Event::Kind> kinds;
  for (uint32_t i = 0; i < 4; ++i) {
    const Write w = write_of(ranks, 1 - i % 2, 0, 0, i);
    ASSERT_TRUE(endpoints[i % 2]->post({&w, 1}));
    Event e;
    do e = next_event(*endpoints[i % 2]);
    while (e.kind == Event::Kind::kArrived);
    kinds.push_back(e.kind);
  }
  EXPECT_EQ(kinds, (std::vector{Event::Kind::kCompleted, Event::Kind::kCompleted,
                                Event::Kind::kCompleted, Event::Kind::kFailed}));
}

TEST(Loopback, StalledRankPlacesAndReportsNothingAndOthersGoOn) {
  const TestRanks ranks(3, 64);
  const Endpoints endpoints = value_of(
      create_loopback({.link = {.stalled_ranks = {0}, .stall_us = 1e12}}, ranks.heap_of_rank));
  fill_pattern(ranks.data(0), 64, 1);
  fill_pattern(ranks.data(1), 64, 2);
  const Write from_stalled = write_of(ranks, 2, 0, 32, 0);
  const Write to_stalled = write_of(ranks, 0, 0, 0, 1);
  const Write healthy = write_of(ranks, 2, 32, 32, 2);
  ASSERT_TRUE(endpoints[0]->post({&from_stalled, 1}));
  ASSERT_TRUE(endpoints[1]->post({&to_stalled, 1}));
  ASSERT_TRUE(endpoints[1]->post({&healthy, 1}));
  // A receiver that waits for both must hear from each: the healthy one says nothing for the other.
  while (next_event(*endpoints[1]).id != healthy.id) {
  }
  EXPECT_EQ(next_event(*endpoints[2]).peer, 1u);
  for (int i = 0; i < 1000; ++i) ASSERT_TRUE(poll_all(*endpoints[0]).empty());
  EXPECT_TRUE(poll_all(*endpoints[2]).empty());
  EXPECT_EQ(std::count(ranks.data(2), ranks.data(2) + 32, '\0'), 32);
}

TEST(Loopback, StallEndsAndComesAgainWithTheNextPostToAnIdleEndpoint) {
  const TestRanks ranks(2, 64);
  const Endpoints endpoints = value_of(
      create_loopback({.link = {.stalled_ranks = {0}, .stall_us = 2000}}, ranks.heap_of_rank));
  for (uint32_t launch = 0; launch < 2; ++launch) {
    const auto start = std::chrono::steady_clock::now();
    const Write w = write_of(ranks, 1, 0, 64, launch);
    ASSERT_TRUE(endpoints[0]->post({&w, 1}));
    (void)next_event(*endpoints[0]);
    EXPECT_GE(us_since(start), 2000);
  }
}

TEST(Loopback, WriteIntoARegionThatWentMeanwhileFails) {
  TestRanks ranks(2, 64);
  const Endpoints endpoints = value_of(
      create_loopback({.link = {.link_us = 1000, .stalled_ranks = {}}}, ranks.heap_of_rank));
  const Write w = write_of(ranks, 1, 0, 64, 0);
  ASSERT_TRUE(endpoints[0]->post({&w, 1}));
  ranks.regions[1].reset();
  EXPECT_EQ(next_event(*endpoints[0]).kind, Event::Kind::kFailed);
}

TEST(Loopback, RepeatedImmediateComesBehindTheNextOne) {
  const TestRanks ranks(2, 64);
  const Endpoints endpoints =
      value_of(create_loopback({.repeat_immediates = true}, ranks.heap_of_rank));
  std::vector<uint32_t> values;
  for (uint32_t i = 1; i <= 3; ++i) {
    const Write w = write_of(ranks, 1, 0, 0, i);
    ASSERT_TRUE(endpoints[0]->post({&w, 1}));
    (void)next_event(*endpoints[0]);
    for (const Event& e : poll_all(*endpoints[1])) values.push_back(e.value);
  }
  EXPECT_EQ(values, (std::vector<uint32_t>{1, 2, 1, 3, 2}));
}

TEST(Loopback, BadOptionIsRefusedByItsName) {
  const TestRanks ranks(2, 64);
  const std::vector<std::pair<std::string, LoopbackConfig>> cases = {
      {"link_gbs", {.link = {.link_gbs = -1, .stalled_ranks = {}}}},
      {"link_us", {.link = {.link_us = -1, .stalled_ranks = {}}}},
      {"late_us", {.link = {.late_us = -1, .stalled_ranks = {}}}},
      {"stall_us", {.link = {.stalled_ranks = {}, .stall_us = 1e300}}},
      {"stalled_ranks", {.link = {.stalled_ranks = {2}}}},
      {"max_in_flight", {.max_in_flight = 0}},
  };
  for (const auto& [name, config] : cases) {
    const Status status = create_loopback(config, ranks.heap_of_rank).status();
    EXPECT_EQ(status.code(), Code::kInvalidArgument) << name;
    EXPECT_NE(status.message().find(name), std::string::npos) << status.message();
  }
}

/// A barrier as a bootstrap makes it: set my word at every peer, tell it, wait for all peers.
/// One thread drives all ranks in a random order. Returns how many words were read early.
uint32_t early_words_of_barrier(TestRanks& ranks, uint64_t seed) {
  const auto num_ranks = static_cast<uint32_t>(ranks.heaps.size());
  const Endpoints endpoints = value_of(
      create_loopback({.link = {.order = LinkOrder::kReordered, .seed = seed, .stalled_ranks = {}}},
                      ranks.heap_of_rank));
  std::mt19937_64 random(seed);
  for (uint32_t rank = 0; rank < num_ranks; ++rank) {
    std::memset(ranks.data(rank), 0, 8 * num_ranks);
    std::memcpy(ranks.data(rank) + 8 * rank, &seed, 8);
  }
  std::vector<uint32_t> heard(num_ranks), posted(num_ranks);
  uint32_t early = 0;
  for (uint32_t total = 0; total < num_ranks * (num_ranks - 1);) {
    const auto rank = static_cast<uint32_t>(random() % num_ranks);
    if (posted[rank] == 0) {
      posted[rank] = 1;
      for (uint32_t step = 1; step < num_ranks; ++step) {
        const Write w = write_of(ranks, (rank + step) % num_ranks, 8 * rank, 8, rank);
        EXPECT_TRUE(endpoints[rank]->post({&w, 1}));
      }
    }
    for (const Event& e : poll_all(*endpoints[rank])) {
      if (e.kind != Event::Kind::kArrived) continue;
      uint64_t word = 0;
      std::memcpy(&word, ranks.data(rank) + 8 * e.value, 8);
      early += word != seed || posted[e.value] == 0 ? 1 : 0;
      ++heard[rank];
      ++total;
    }
  }
  for (const uint32_t n : heard) EXPECT_EQ(n, num_ranks - 1);
  return early;
}

TEST(Loopback, BarrierOverReorderedLinksHoldsForTenThousandSeeds) {
  TestRanks ranks(3, 64);
  for (uint64_t seed = base_seed() + 1; seed <= base_seed() + 10'000; ++seed) {
    ASSERT_EQ(early_words_of_barrier(ranks, seed), 0u) << "seed " << seed;
  }
}

}  // namespace
}  // namespace mkernel::test
