// RC over fake NICs: what is there before a flag is, how queues are filled, what is registered how.
#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <random>
#include <thread>

#include "core/sync.h"
#include "network/arrival.h"
#include "transport/verbs_ranks.h"

namespace mkernel::test {
namespace {

using Kind = Write::Kind;

uint32_t flag_of(const VerbsRanks& v, uint32_t rank, uint32_t flag) {
  return load_acquire<Scope::kSys>(v.ranks.flag(rank, flag));
}

void poll_often(VerbsRanks& v, uint32_t rank, std::vector<Event>* events = nullptr) {
  for (int i = 0; i < 200; ++i) {
    for (const Event& e : v.poll(rank)) {
      if (events != nullptr) events->push_back(e);
    }
  }
}

FakeConfig two_rails(uint64_t seed = 1) { return {.devices = fake_devices(2), .seed = seed}; }
VerbsOptions over_two_rails(int qps = 1, int64_t split_bytes = 1024) {
  return {.devices = {"fake0", "fake1"}, .qps_per_peer = qps, .split_bytes = split_bytes};
}

TEST(Verbs, FlagWaitsForThePartsOnAllRails) {
  for (const char* const slow : {"fake0", "fake1"}) {
    VerbsRanks v(2, two_rails(), over_two_rails());
    fill_pattern(v.ranks.data(0), 4096, 1);
    v.fabric.hold(slow, true);
    const std::array writes{v.write(Kind::kData, 1, 0, 4096, 0, 0), VerbsRanks::flag(1, 3, 9, 1)};
    ASSERT_TRUE(v.endpoints[0]->post(writes));
    std::vector<Event> events;
    poll_often(v, 0, &events);
    EXPECT_TRUE(events.empty()) << "half a chunk is complete";
    EXPECT_EQ(flag_of(v, 1, 3), 0u);
    v.fabric.hold(slow, false);
    v.await(0, 2);
    EXPECT_EQ(flag_of(v, 1, 3), 9u);
    EXPECT_TRUE(has_pattern(v.ranks.data(1), 4096, 1));
  }
}

TEST(Verbs, FlagWaitsForAllEarlierWritesToItsPeer) {
  // Writes too small to be split take turns: the first is on the slow rail, its flag comes third.
  VerbsRanks v(3, two_rails(), over_two_rails());
  v.fabric.hold("fake0", true);
  const std::array writes{v.write(Kind::kData, 1, 0, 64, 0, 0),
                          v.write(Kind::kData, 1, 64, 64, 0, 1), VerbsRanks::flag(1, 0, 1, 2)};
  ASSERT_TRUE(v.endpoints[0]->post(writes));
  const Write second_flag = VerbsRanks::flag(1, 1, 1, 3);
  ASSERT_TRUE(v.endpoints[0]->post({&second_flag, 1}));
  poll_often(v, 0);
  EXPECT_EQ(flag_of(v, 1, 0), 0u);
  EXPECT_EQ(flag_of(v, 1, 1), 0u) << "it overtook an earlier flag";
  v.fabric.hold("fake0", false);
  poll_often(v, 0);
  EXPECT_EQ(flag_of(v, 1, 0), 1u);
  EXPECT_EQ(flag_of(v, 1, 1), 1u);
}

TEST(Verbs, ImmediateComesAfterThePartsOnAllRails) {
  VerbsRanks v(2, two_rails(), over_two_rails());
  fill_pattern(v.ranks.data(0), 8192, 1);
  v.fabric.hold("fake1", true);
  const Write w = v.write(Kind::kDataImmediate, 1, 0, 8192, 77, 5);
  ASSERT_TRUE(v.endpoints[0]->post({&w, 1}));
  std::vector<Event> events;
  poll_often(v, 0, &events);
  poll_often(v, 1, &events);
  EXPECT_TRUE(events.empty());
  v.fabric.hold("fake1", false);
  EXPECT_EQ(v.await(0, 1)[0].kind, Event::Kind::kCompleted);
  EXPECT_EQ(v.await(1, 1)[0].value, 77u);
  EXPECT_TRUE(has_pattern(v.ranks.data(1), 8192, 1));
}

TEST(Verbs, RaisedFlagMeansThatItsChunkIsThereWhileRailsStallAtRandom) {
  constexpr uint32_t kChunks = 32;
  for (uint64_t seed = base_seed(); seed < base_seed() + 200; ++seed) {
    SCOPED_TRACE("seed " + std::to_string(seed));
    std::mt19937_64 random(seed);
    VerbsRanks v(2, two_rails(seed), over_two_rails(2, 256));
    uint32_t completed = 0;
    for (uint32_t posted = 0; completed < 2 * kChunks;) {
      v.fabric.hold("fake" + std::to_string(random() % 2), random() % 2 == 0);
      if (posted < kChunks) {
        const uint64_t bytes = 1 + random() % 2048;
        fill_pattern(v.ranks.data(0) + posted * 2048, bytes, posted);
        Write chunk = v.write(Kind::kData, 1, posted * 2048, bytes, uint32_t(bytes), 2 * posted);
        chunk.flag = posted++;
        const ChunkWrites writes = writes_of_chunk(ArrivalMethod::kFlagBehindData, chunk);
        ASSERT_TRUE(v.endpoints[0]->post({writes.writes.data(), writes.count}));
      }
      completed += static_cast<uint32_t>(v.poll(0).size());
      for (uint32_t i = 0; i < posted; ++i) {
        const uint32_t bytes = flag_of(v, 1, i);
        ASSERT_TRUE(bytes == 0 || has_pattern(v.ranks.data(1) + i * 2048, bytes, i));
      }
    }
  }
}

TEST(Verbs, WriteBeyondTheLargestMessageIsCutAndItsImmediateComesLast) {
  FakeConfig config;
  config.devices[0].max_message_bytes = 1000;
  VerbsRanks v(2, config);
  fill_pattern(v.ranks.data(0), 30'001, 4);
  const Write w = v.write(Kind::kDataImmediate, 1, 0, 30'001, 8, 1);
  ASSERT_TRUE(v.endpoints[0]->post({&w, 1}));
  v.await(0, 1);
  EXPECT_EQ(v.await(1, 1)[0].value, 8u);
  EXPECT_TRUE(has_pattern(v.ranks.data(1), 30'001, 4));
  EXPECT_EQ(v.fabric.num_requests(), 31u);
}

TEST(Verbs, FlagsAreNeverRegisteredWithRelaxedOrdering) {
  for (const bool is_relaxed : {false, true}) {
    const VerbsRanks v(2, {}, {.relaxed_ordering = is_relaxed});
    uint32_t num_data = 0, num_flags = 0;
    for (const FakeRegistration& r : v.fabric.registrations()) {
      if (!r.access.remote_write) {
        EXPECT_FALSE(r.access.relaxed_ordering);  // words that only this rank's NIC reads
        continue;
      }
      const bool is_flags = r.address == reinterpret_cast<uint64_t>(v.ranks.flag(r.rank, 0));
      EXPECT_EQ(r.access.relaxed_ordering, !is_flags && is_relaxed);
      ++(is_flags ? num_flags : num_data);
    }
    EXPECT_EQ(num_flags, 2u);
    EXPECT_EQ(num_data, 2u);
  }
}

TEST(Verbs, BatchTakesOneDoorbellAndOneCompletionPerChunk) {
  VerbsRanks v(2);
  std::vector<Write> writes;
  for (uint32_t i = 0; i < 8; ++i) {
    writes.push_back(v.write(Kind::kData, 1, i * 64, 64, 0, 2 * i));
    writes.push_back(VerbsRanks::flag(1, i, 1, 2 * i + 1));
  }
  ASSERT_TRUE(v.endpoints[0]->post(writes));
  EXPECT_EQ(v.fabric.num_doorbells(), 1u);
  EXPECT_EQ(v.fabric.num_requests(), 16u);
  EXPECT_EQ(v.fabric.num_signaled(), 8u);
  std::vector<Event> events = v.await(0, 16);
  for (uint32_t i = 0; i < 16; ++i) EXPECT_EQ(events[i].id, i) << "each exactly once, in order";
}

TEST(Verbs, PlannerKeepsWithinQueuesOfAnyDepthAndFinishes) {
  for (const uint32_t depth : {16u, 128u, 4096u}) {
    FakeConfig config{.devices = fake_devices(2, {.max_depth = depth, .max_cqe = 4 * depth})};
    VerbsRanks v(3, config, over_two_rails(2, 256));
    const uint32_t max_in_flight = v.endpoints[0]->traits().max_in_flight;
    EXPECT_EQ(max_in_flight, std::min(depth, 256u));
    uint32_t posted = 0, completed = 0;
    while (completed < 3000) {  // the fake fails the test if a queue overflows
      for (; posted < 3000 && posted - completed < max_in_flight; ++posted) {
        const Write w = v.write(posted % 3 == 0 ? Kind::kDataImmediate : Kind::kData,
                                1 + posted % 2, 0, posted % 2000, posted, posted);
        ASSERT_TRUE(v.endpoints[0]->post({&w, 1}));
      }
      for (uint32_t rank = 0; rank < 3; ++rank) {
        const size_t count = v.poll(rank).size();
        completed += rank == 0 ? static_cast<uint32_t>(count) : 0;
      }
    }
  }
}

TEST(Verbs, SendsWaitForASmallCompletionQueue) {
  // Room for the receives of three peers, and so for no more than that many sends.
  FakeConfig config;
  config.devices[0].max_depth = 16;
  config.devices[0].max_cqe = 48;
  VerbsRanks v(4, config);
  for (uint32_t i = 0; i < 16; ++i) {
    const Write w = v.write(Kind::kData, 1 + i % 3, 0, 64, 0, i);
    ASSERT_TRUE(v.endpoints[0]->post({&w, 1}));
  }
  v.await(0, 16);
}

// --- That the fake sees what it is there for ---

TEST(FakeVerbs, ReportsASecondThreadThatPosts) {
  FakeFabric fabric({.fails_tests = false});
  std::shared_ptr<verbs::Api> api = fabric.api(0);
  const auto device = value_of(api->open("fake0"));
  const auto queue = value_of(device->create_completion_queue(64));
  const auto pair = value_of(device->create_queue_pair({.send_depth = 2,
                                                        .receive_depth = 2,
                                                        .send_completions = queue.get(),
                                                        .receive_completions = queue.get()}));
  ASSERT_TRUE(pair->connect({}));
  const std::array<verbs::SendRequest, 1> one{};
  EXPECT_TRUE(pair->post_send(one));
  std::thread([&] { (void)pair->post_send(one); }).join();
  ASSERT_EQ(fabric.violations().size(), 1u);
  EXPECT_NE(fabric.violations()[0].find("second thread"), std::string::npos);

  EXPECT_FALSE(pair->post_send(one)) << "depth 2";
  EXPECT_EQ(fabric.violations().size(), 2u);
}

TEST(FakeVerbs, ReportsAnOverrunCompletionQueue) {
  FakeFabric fabric({.fails_tests = false});
  const auto device = value_of(fabric.api(0)->open("fake0"));
  const auto queue = value_of(device->create_completion_queue(1));
  const auto pair = value_of(device->create_queue_pair({.send_depth = 2,
                                                        .receive_depth = 2,
                                                        .send_completions = queue.get(),
                                                        .receive_completions = queue.get()}));
  ASSERT_TRUE(pair->connect({.remote_number = 999}));
  const std::array<verbs::SendRequest, 2> two{};
  ASSERT_TRUE(pair->post_send(two));
  for (int i = 0; i < 100 && fabric.violations().empty(); ++i) {
    (void)value_of(queue->poll(std::span<verbs::Completion>()));
  }
  ASSERT_FALSE(fabric.violations().empty());
  EXPECT_NE(fabric.violations()[0].find("overrun"), std::string::npos);
}

}  // namespace
}  // namespace mkernel::test
