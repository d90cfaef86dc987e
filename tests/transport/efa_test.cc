// SRD over fake NICs: whatever comes in whatever order, late or twice, no flag is raised too early.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <random>

#include "network/arrival.h"
#include "transport/verbs_ranks.h"

namespace mkernel::test {
namespace {

using Kind = Write::Kind;

FakeConfig efa(uint64_t seed, uint32_t depth = 4096, size_t num_devices = 1) {
  return {.devices =
              fake_devices(num_devices, {.link_layer = verbs::LinkLayer::kEfa, .max_depth = depth}),
          .seed = seed};
}

/// What a rank's proxy does with immediates, on plain words. Returns the flag if it was raised.
struct Flags {
  std::vector<uint32_t> epochs = std::vector<uint32_t>(8, 0xfffffffe);
  std::optional<uint32_t> take(uint32_t value) {
    const Immediate immediate = decode_immediate(value);
    const ResolvedEpoch resolved = resolve_epoch(epochs[immediate.flag], immediate.epoch_bits);
    if (resolved.stale) return std::nullopt;
    epochs[immediate.flag] = resolved.epoch;
    return immediate.flag;
  }
};

/// Four chunks from rank 0 to rank 1 in each of three epochs, of which the next begins when all
/// chunks of the last are there: so an immediate that repeats meets the next epoch's flags.
void run_epochs(uint64_t seed, uint32_t depth) {
  constexpr uint32_t kChunks = 4, kBytes = 64;
  FakeConfig config = efa(seed, depth);
  config.repeats_immediates = config.late_immediates = true;
  VerbsRanks v(2, config, {.split_bytes = 1 << 20}, kSrd, 4096);
  Flags flags;
  for (uint32_t epoch = 0xffffffff; epoch != 2; ++epoch) {
    for (uint32_t c = 0; c < kChunks; ++c) {
      std::memset(v.ranks.data(1) + c * kBytes, 0, kBytes);
      fill_pattern(v.ranks.data(0) + c * kBytes, kBytes, epoch + c);
      Write chunk = v.write(Kind::kData, 1, c * kBytes, kBytes, epoch, 2 * c);
      chunk.flag = c;
      const ChunkWrites writes = writes_of_chunk(ArrivalMethod::kImmediate, chunk);
      ASSERT_TRUE(v.endpoints[0]->post({writes.writes.data(), writes.count}));
    }
    uint32_t num_completed = 0, num_raised = 0;
    for (int polls = 0; num_completed < kChunks || num_raised < kChunks; ++polls) {
      ASSERT_LT(polls, 100'000) << num_completed << " complete, " << num_raised << " raised";
      num_completed += static_cast<uint32_t>(v.poll(0).size());
      for (const Event& e : v.poll(1)) {
        ASSERT_EQ(e.kind, Event::Kind::kArrived);
        const std::optional<uint32_t> raised = flags.take(e.value);
        if (!raised) continue;
        ++num_raised;
        ASSERT_TRUE(has_pattern(v.ranks.data(1) + *raised * kBytes, kBytes, epoch + *raised));
      }
    }
  }
}

TEST(Efa, LateAndRepeatedImmediatesRaiseNoFlagTooEarlyForTenThousandSeeds) {
  for (uint64_t seed = base_seed() + 1; seed <= base_seed() + 10'000; ++seed) {
    run_epochs(seed, seed % 2 == 0 ? 16 : 64);
    ASSERT_FALSE(HasFatalFailure()) << "seed " << seed;
  }
}

TEST(Efa, BarrierOfAStartHoldsForTenThousandSeeds) {
  constexpr uint32_t kRanks = 3;
  TestRanks ranks(kRanks, 64);
  for (uint64_t seed = base_seed() + 1; seed <= base_seed() + 10'000; ++seed) {
    FakeFabric fabric(efa(seed, 16));
    const auto endpoints = create_fake(fabric, ranks.heap_of_rank, {}, kSrd);
    connect_all(endpoints, ranks);
    std::mt19937_64 random(seed);
    for (uint32_t rank = 0; rank < kRanks; ++rank) {
      std::memset(ranks.data(rank), 0, 8 * kRanks);
      std::memcpy(ranks.data(rank) + 8 * rank, &seed, 8);
    }
    std::array<bool, kRanks> has_posted{};
    for (uint32_t heard = 0; heard < kRanks * (kRanks - 1);) {
      const auto rank = static_cast<uint32_t>(random() % kRanks);
      for (uint32_t step = 1; step < kRanks && !has_posted[rank]; ++step) {
        const uint64_t word = ranks.address() + 8 * rank;
        const Write w{.kind = Kind::kDataImmediate,
                      .peer = (rank + step) % kRanks,
                      .local_address = word,
                      .remote_address = word,
                      .bytes = 8,
                      .value = rank};
        ASSERT_TRUE(endpoints[rank]->post({&w, 1}));
      }
      has_posted[rank] = true;
      std::array<Event, 8> events;
      const size_t count = value_of(endpoints[rank]->poll(events));
      for (size_t i = 0; i < count; ++i) {
        if (events[i].kind != Event::Kind::kArrived) continue;
        ASSERT_EQ(events[i].peer, events[i].value);
        uint64_t word = 0;
        std::memcpy(&word, ranks.data(rank) + 8 * events[i].value, 8);
        ASSERT_EQ(word, seed) << "a word that was told is not there";
        ++heard;
      }
    }
  }
}

TEST(Efa, ManySendersToOneReceiverOfDepth16LoseNothing) {
  constexpr uint32_t kRanks = 9, kWrites = 200;
  VerbsRanks v(kRanks, efa(base_seed() + 5, 16), {}, kSrd);
  std::vector<uint32_t> posted(kRanks), completed(kRanks), heard(kRanks);
  const auto is_done = [&] {
    return std::all_of(heard.begin() + 1, heard.end(), [](uint32_t n) { return n == kWrites; }) &&
           std::all_of(completed.begin() + 1, completed.end(),
                       [](uint32_t n) { return n == kWrites; });
  };
  for (int rounds = 0; !is_done(); ++rounds) {
    ASSERT_LT(rounds, 1'000'000);
    for (uint32_t rank = 1; rank < kRanks; ++rank) {
      while (posted[rank] < kWrites && posted[rank] - completed[rank] < 16) {
        const Write w = v.write(Kind::kDataImmediate, 0, rank * 64, 64, posted[rank], 0);
        ASSERT_TRUE(v.endpoints[rank]->post({&w, 1}));
        ++posted[rank];
      }
      for (const Event& e : v.poll(rank)) {
        ASSERT_EQ(e.kind, Event::Kind::kCompleted);
        ++completed[rank];
      }
    }
    for (const Event& e : v.poll(0)) ++heard[e.peer];
  }
}

TEST(Efa, WriteIsSplitOverRailsAndToldWhenAllOfItIsThere) {
  for (uint64_t seed = base_seed(); seed < base_seed() + 200; ++seed) {
    VerbsRanks v(2, efa(seed, 64, 2), {.devices = {"fake0", "fake1"}, .split_bytes = 512}, kSrd);
    std::mt19937_64 random(seed);
    fill_pattern(v.ranks.data(0), 8 * 4096, 3);
    for (uint32_t i = 0; i < 8; ++i) {
      const Write w = v.write(Kind::kDataImmediate, 1, i * 4096, 4096, i, i);
      ASSERT_TRUE(v.endpoints[0]->post({&w, 1}));
    }
    for (uint32_t heard = 0; heard < 8;) {
      v.fabric.hold("fake" + std::to_string(random() % 2), random() % 2 == 0);
      (void)v.poll(0);
      for (const Event& e : v.poll(1)) {
        ++heard;
        const uint64_t offset = e.value * 4096;
        ASSERT_EQ(std::memcmp(v.ranks.data(0) + offset, v.ranks.data(1) + offset, 4096), 0)
            << "seed " << seed;
      }
    }
  }
}

TEST(Efa, FailedWriteBreaksTheWayToItsPeerAndNoOther) {
  VerbsRanks v(3, efa(base_seed() + 7), {}, kSrd);
  v.fabric.kill(2);
  std::vector<Write> writes;
  for (uint32_t i = 0; i < 20; ++i) {
    writes.push_back(v.write(Kind::kDataImmediate, 1 + i % 2, 0, 64, i, i));
  }
  ASSERT_TRUE(v.endpoints[0]->post(writes));
  for (const Event& e : v.await(0, 20)) {
    EXPECT_EQ(e.kind, e.peer == 1 ? Event::Kind::kCompleted : Event::Kind::kFailed);
  }
  EXPECT_NE(v.failure(0).find("rank 2"), std::string::npos) << v.failure(0);
  EXPECT_EQ(v.await(1, 10).size(), 10u);
}

TEST(Efa, ImmediateOfWhoIsNoPeerIsDropped) {
  const TestRanks ranks(3, 64);
  FakeFabric fabric(efa(1));
  const auto endpoints = create_fake(fabric, ranks.heap_of_rank, {}, kSrd);
  std::vector<std::string> addresses;
  for (const auto& endpoint : endpoints) addresses.push_back(endpoint->address());
  std::vector<std::string> without_2 = addresses;
  without_2[2].clear();
  ASSERT_TRUE(endpoints[0]->connect(without_2));
  for (const uint32_t rank : {1u, 2u}) ASSERT_TRUE(endpoints[rank]->connect(addresses));
  std::array<Event, 4> events;
  for (const uint32_t rank : {2u, 1u}) {
    const Write w{.kind = Kind::kDataImmediate, .peer = 0, .value = rank};
    ASSERT_TRUE(endpoints[rank]->post({&w, 1}));
    while (value_of(endpoints[rank]->poll(events)) == 0) {
    }
  }
  size_t count = 0;
  while (count == 0) count = value_of(endpoints[0]->poll(events));
  EXPECT_EQ(count, 1u);
  EXPECT_EQ(events[0].value, 1u);
  EXPECT_EQ(events[0].peer, 1u);
}

}  // namespace
}  // namespace mkernel::test
