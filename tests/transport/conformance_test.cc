// What every transport must do, whatever it keeps in order. A transport joins by an entry in
// transports.h.
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <chrono>
#include <deque>
#include <map>
#include <random>
#include <thread>

#include "core/sync.h"
#include "network/arrival.h"
#include "transport/transports.h"

namespace mkernel::test {
namespace {

class Conformance : public testing::TestWithParam<TransportCase> {
 protected:
  void SetUp() override {
    if (const std::string reason = GetParam().why_not(); !reason.empty()) GTEST_SKIP() << reason;
  }

  void connect(uint32_t num_ranks, uint64_t region_bytes, uint32_t num_flags = 64) {
    ranks_ =
        std::make_unique<TestRanks>(num_ranks, region_bytes, num_flags, 0, GetParam().memory());
    endpoints_ = GetParam().create(ranks_->heap_of_rank);
    connect_all(endpoints_, *ranks_);
    events_.resize(num_ranks);
  }

  /// A write of bytes at the same place of both ranks, with an immediate.
  Write write_to(uint32_t peer, uint64_t offset, uint64_t bytes, uint32_t value, uint64_t id) {
    const uint64_t address = ranks_->address() + offset;
    return {.kind = Write::Kind::kDataImmediate,
            .peer = peer,
            .local_address = address,
            .remote_address = address,
            .bytes = bytes,
            .value = value,
            .id = id};
  }

  enum class Drives { kAllRanks, kThisRank };

  /// Polls a rank once, and keeps what it says until it is awaited.
  void poll(uint32_t rank) {
    std::array<Event, 1> event;
    if (value_of(endpoints_[rank]->poll(event)) == 0) return std::this_thread::yield();
    events_[rank].push_back(event[0]);
  }

  /// All events of a rank up to the count-th of one kind. The receiver of a write may have a part
  /// in its progress, so a thread that drives all ranks polls the others meanwhile.
  std::vector<Event> await(uint32_t rank, Event::Kind kind, size_t count,
                           Drives drives = Drives::kAllRanks) {
    std::vector<Event> all;
    const auto deadline = std::chrono::steady_clock::now() + std::chrono::seconds(60);
    for (size_t seen = 0; seen < count;) {
      if (std::chrono::steady_clock::now() > deadline) {
        ADD_FAILURE() << seen << " of " << count << " events";
        break;
      }
      for (uint32_t r = 0; r < endpoints_.size(); ++r) {
        if (r == rank || drives == Drives::kAllRanks) poll(r);
      }
      for (; seen < count && !events_[rank].empty(); events_[rank].pop_front()) {
        all.push_back(events_[rank].front());
        seen += all.back().kind == kind ? 1 : 0;
      }
    }
    return all;
  }

  // Endpoints go before the heaps that they write into.
  std::unique_ptr<TestRanks> ranks_;
  std::vector<std::unique_ptr<Endpoint>> endpoints_;
  std::vector<std::deque<Event>> events_;  // of each rank, polled and not awaited yet
};

TEST_P(Conformance, DataIsThereBeforeItsSignal) {
  constexpr uint32_t kMessages = 200;
  constexpr uint64_t kSlotBytes = 2048;
  connect(2, kMessages * kSlotBytes, kMessages);
  for (uint32_t m = 0; m < kMessages; ++m) {
    fill_pattern(ranks_->data(0) + m * kSlotBytes, kSlotBytes, m);
  }
  const ArrivalMethod method = arrival_method(endpoints_[0]->traits());
  std::atomic<bool> sent = false;
  std::thread sender([&] {
    for (uint32_t m = 0; m < kMessages; ++m) {
      Write chunk = write_to(1, m * kSlotBytes, kSlotBytes - m % 100, 1, 2 * m);
      chunk.flag = m;
      const ChunkWrites writes = writes_of_chunk(method, chunk);
      EXPECT_TRUE(endpoints_[0]->post({writes.writes.data(), writes.count}));
      await(0, Event::Kind::kCompleted, writes.count, Drives::kThisRank);
    }
    sent = true;
  });
  const auto check = [&](uint32_t m) {
    ASSERT_TRUE(has_pattern(ranks_->data(1) + m * kSlotBytes, kSlotBytes - m % 100, m));
  };
  if (method == ArrivalMethod::kFlagBehindData) {
    for (uint32_t m = 0; m < kMessages; ++m) {
      while (load_acquire<Scope::kSys>(ranks_->flag(1, m)) == 0) std::this_thread::yield();
      check(m);
    }
  }
  for (uint32_t told = 0; told < kMessages && method == ArrivalMethod::kImmediate; ++told) {
    const std::vector<Event> arrived = await(1, Event::Kind::kArrived, 1, Drives::kThisRank);
    ASSERT_FALSE(arrived.empty());
    check(decode_immediate(arrived.front().value).flag);
  }
  while (!sent) poll(1);  // the last completion may take its part too
  sender.join();
}

TEST_P(Conformance, TenThousandWritesArriveAndCompleteExactlyOnceEach) {
  constexpr uint32_t kWrites = 10'000;
  connect(2, 64 * 64);
  fill_pattern(ranks_->data(0), 64 * 64, 5);
  std::vector<int> arrivals(kWrites), completions(kWrites);
  uint32_t posted = 0, completed = 0, arrived = 0;
  while (completed < kWrites || arrived < kWrites) {
    while (posted < kWrites && posted - completed < GetParam().max_in_flight) {
      const Write w = write_to(1, posted % 64 * 64, 64, posted, posted);
      ASSERT_TRUE(endpoints_[0]->post({&w, 1}));
      ++posted;
    }
    std::array<Event, 32> events;
    const size_t num_completed = value_of(endpoints_[0]->poll(events));
    for (size_t i = 0; i < num_completed; ++i) {
      ASSERT_EQ(events[i].kind, Event::Kind::kCompleted);
      ++completions.at(events[i].id);
      ++completed;
    }
    const size_t num_arrived = value_of(endpoints_[1]->poll(events));
    for (size_t i = 0; i < num_arrived; ++i) {
      ASSERT_EQ(events[i].kind, Event::Kind::kArrived);
      ++arrivals.at(events[i].value);
      ++arrived;
    }
  }
  EXPECT_EQ(std::ranges::count(arrivals, 1), kWrites);
  EXPECT_EQ(std::ranges::count(completions, 1), kWrites);
  EXPECT_TRUE(has_pattern(ranks_->data(1), 64 * 64, 5));
}

TEST_P(Conformance, WriteCompletesOnlyWhenItsBytesArePlaced) {
  connect(2, 100 * 256);
  for (uint32_t i = 0; i < 100; ++i) {
    fill_pattern(ranks_->data(0) + i * 256, 256, i);
    Write w = write_to(1, i * 256, 256, 0, i);
    w.kind = Write::Kind::kData;
    ASSERT_TRUE(endpoints_[0]->post({&w, 1}));
    if (i % 2 == 0 && GetParam().max_in_flight > 1) continue;
    for (const Event& e : await(0, Event::Kind::kCompleted, GetParam().max_in_flight > 1 ? 2 : 1)) {
      ASSERT_TRUE(has_pattern(ranks_->data(1) + e.id * 256, 256, e.id));
    }
  }
}

TEST_P(Conformance, WriteOfZeroBytesCarriesItsImmediateAndCompletes) {
  connect(2, 64);
  const Write w{.kind = Write::Kind::kDataImmediate, .peer = 1, .value = 0xffffffff, .id = 3};
  ASSERT_TRUE(endpoints_[0]->post({&w, 1}));
  EXPECT_EQ(await(0, Event::Kind::kCompleted, 1).front().id, 3u);
  const Event arrived = await(1, Event::Kind::kArrived, 1).front();
  EXPECT_EQ(arrived.value, 0xffffffffu);
  EXPECT_EQ(arrived.peer, 0u);
}

TEST_P(Conformance, FlagWriteStoresItsValue) {
  connect(2, 64);
  const Write w{.kind = Write::Kind::kFlag, .peer = 1, .flag = 7, .value = 0xfffffff0, .id = 1};
  ASSERT_TRUE(endpoints_[0]->post({&w, 1}));
  await(0, Event::Kind::kCompleted, 1);
  EXPECT_EQ(*ranks_->flag(1, 7), 0xfffffff0u);
  EXPECT_EQ(*ranks_->flag(1, 6), 0u);
  EXPECT_EQ(*ranks_->flag(1, 8), 0u);
}

TEST_P(Conformance, NothingArrivesBeforeItWasPosted) {
  connect(2, 64);
  std::array<Event, 4> events;
  for (int i = 0; i < 1000; ++i) {
    for (const auto& endpoint : endpoints_) ASSERT_EQ(value_of(endpoint->poll(events)), 0u);
  }
  const Write w = write_to(1, 0, 64, 1, 1);
  ASSERT_TRUE(endpoints_[0]->post({&w, 1}));
  await(0, Event::Kind::kCompleted, 1);
  await(1, Event::Kind::kArrived, 1);
}

TEST_P(Conformance, WhatIsOutOfBoundsIsRefusedAndPostsNothing) {
  connect(3, 1024);
  const uint64_t end = ranks_->address() + 1024;
  const Write good = write_to(1, 0, 64, 0, 1);
  std::map<std::string, Write> bad;
  for (const char* name : {"peer", "self", "local end", "remote end", "wrap", "no region"}) {
    bad[name] = good;
  }
  bad["peer"].peer = 3;
  bad["self"].peer = 0;
  bad["local end"].local_address = end - 63;
  bad["remote end"].remote_address = end - 63;
  bad["wrap"].bytes = ~uint64_t{0};
  bad["no region"].remote_address = 0;
  bad["flag"] = {.kind = Write::Kind::kFlag, .peer = 1, .flag = kMaxFlags};
  for (const auto& [name, write] : bad) {
    const std::array<Write, 2> writes{good, write};
    const Status status = endpoints_[0]->post(writes);
    EXPECT_EQ(status.code(), Code::kInvalidArgument) << name;
    EXPECT_NE(status.message().find("rank"), std::string::npos) << status.message();
  }
  std::array<Event, 4> events;
  for (int i = 0; i < 100; ++i) ASSERT_EQ(value_of(endpoints_[0]->poll(events)), 0u);
}

TEST_P(Conformance, MoreThanMaxInFlightIsRefusedUntilACompletionIsReported) {
  connect(2, 64);
  const Write w = write_to(1, 0, 64, 0, 1);
  for (uint32_t i = 0; i < GetParam().max_in_flight; ++i) {
    ASSERT_TRUE(endpoints_[0]->post({&w, 1}));
  }
  EXPECT_EQ(endpoints_[0]->post({&w, 1}).code(), Code::kUnavailable);
  await(0, Event::Kind::kCompleted, 1);
  EXPECT_TRUE(endpoints_[0]->post({&w, 1}));
}

TEST_P(Conformance, CloseWithWritesInFlightTouchesNothingAfterwards) {
  connect(2, 1 << 20);
  fill_pattern(ranks_->data(0), 1 << 20, 1);
  for (uint32_t i = 0; i < GetParam().max_in_flight; ++i) {
    const Write w = write_to(1, i * 64, 1 << 19, i, i);
    ASSERT_TRUE(endpoints_[0]->post({&w, 1}));
  }
  std::array<Event, 1> event;
  (void)value_of(endpoints_[0]->poll(event));
  ASSERT_TRUE(endpoints_[0]->close());
  std::fill_n(ranks_->data(1), 1 << 20, '\xaa');
  EXPECT_EQ(endpoints_[0]->poll(event).status().code(), Code::kUnavailable);
  for (int i = 0; i < 100; ++i) (void)value_of(endpoints_[1]->poll(event));
  EXPECT_EQ(std::count(ranks_->data(1), ranks_->data(1) + (1 << 20), '\xaa'), 1 << 20);
  EXPECT_TRUE(endpoints_[1]->close());
  ranks_.reset();  // sanitizers see whoever still reads or writes
  endpoints_.clear();
}

TEST_P(Conformance, ASecondThreadIsRefused) {
  connect(2, 64);
  std::array<Event, 1> event;
  (void)value_of(endpoints_[0]->poll(event));
  std::thread second([&] {
    const Write w = write_to(1, 0, 64, 0, 1);
    EXPECT_EQ(endpoints_[0]->post({&w, 1}).code(), Code::kInvalidArgument);
    EXPECT_EQ(endpoints_[0]->poll(event).status().code(), Code::kInvalidArgument);
  });
  second.join();
}

TEST_P(Conformance, EveryRankHearsFromEveryOther) {
  constexpr uint32_t kRanks = 5;
  constexpr uint64_t kBytes = 300;
  // A rank's region: what it sends, then what it gets from rank 0, 1, ...
  connect(kRanks, (kRanks + 1) * kBytes);
  std::array<uint32_t, kRanks> heard{};
  for (uint32_t src = 0; src < kRanks; ++src) fill_pattern(ranks_->data(src), kBytes, src);
  for (uint32_t step = 1; step < kRanks; ++step) {
    for (uint32_t src = 0; src < kRanks; ++src) {
      Write w = write_to((src + step) % kRanks, 0, kBytes, src, step);
      w.remote_address += (src + 1) * kBytes;
      ASSERT_TRUE(endpoints_[src]->post({&w, 1}));
      await(src, Event::Kind::kCompleted, 1);
    }
    // Completions were awaited, so arrivals may have been reported beside them; count the bytes.
    for (uint32_t dst = 0; dst < kRanks; ++dst) {
      const uint32_t src = (dst + kRanks - step) % kRanks;
      ASSERT_TRUE(has_pattern(ranks_->data(dst) + (src + 1) * kBytes, kBytes, src));
      ++heard[dst];
    }
  }
  for (const uint32_t n : heard) EXPECT_EQ(n, kRanks - 1);
}

INSTANTIATE_TEST_SUITE_P(All, Conformance, testing::ValuesIn(all_transports()),
                         [](const auto& test) { return test.param.name; });

}  // namespace
}  // namespace mkernel::test
