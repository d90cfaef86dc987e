#include "proxy/proxy.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <deque>
#include <functional>
#include <random>
#include <thread>
#include <vector>

#include "network/loopback.h"
#include "transport/test_ranks.h"

namespace mkernel {
namespace {

using test::TestRanks;
using test::value_of;

constexpr uint64_t kLongNs = 10'000'000'000;
constexpr uint32_t kLog2Capacity = 6;

/// A rank's queue, as a kernel would hold it, and its proxy.
struct TestProxy {
  TestProxy(TestRanks& ranks, uint32_t rank, std::unique_ptr<Endpoint> endpoint, uint32_t* abort,
            uint64_t limit_ns = kLongNs)
      : queue(slots.data(), &producers, &tail, kLog2Capacity),
        dog{abort, &claim, &fault, {limit_ns, limit_ns}, rank} {
    proxy = value_of(Proxy::start({.rank = rank,
                                   .num_ranks = static_cast<uint32_t>(ranks.heaps.size()),
                                   .queue = queue,
                                   .endpoint = std::move(endpoint),
                                   .heap = ranks.heaps[rank].get(),
                                   .abort = abort,
                                   .limit_ns = limit_ns}));
  }
  uint64_t completed() { return load_acquire<Scope::kSys>(&tail); }

  std::array<CommandSlot, 1 << kLog2Capacity> slots{};
  ProducerWords producers;
  uint64_t tail = 0;
  CommandQueue queue;
  uint32_t claim = 0;
  FaultRecord fault{};
  Watchdog dog;
  std::unique_ptr<Proxy> proxy;
};

/// Ranks joined by loopback, a proxy each.
struct TestCluster {
  TestCluster(uint32_t num_ranks, const LoopbackConfig& config, uint64_t region_bytes = 4096,
              uint32_t first_epoch = 0, uint64_t limit_ns = kLongNs)
      : ranks(num_ranks, region_bytes, 64, first_epoch) {
    auto endpoints = value_of(create_loopback(config, ranks.heap_of_rank));
    for (uint32_t rank = 0; rank < num_ranks; ++rank) {
      proxies.push_back(
          std::make_unique<TestProxy>(ranks, rank, std::move(endpoints[rank]), &abort, limit_ns));
    }
  }
  bool await_flag(uint32_t rank, uint32_t flag, uint32_t epoch) {
    return proxies[rank]
        ->dog
        .wait({Place::kChunkArrived, 0, flag}, epoch,
              [&] { return load_acquire<Scope::kSys>(ranks.flag(rank, flag)); })
        .ok;
  }
  Command command(uint16_t dst, uint64_t offset, uint32_t bytes, uint32_t flag, uint32_t epoch) {
    return {ranks.address() + offset, ranks.address() + offset, bytes, epoch, flag, dst};
  }
  bool push(uint32_t rank, const Command& c) {
    return proxies[rank]->queue.push(c, proxies[rank]->dog);
  }

  TestRanks ranks;
  uint32_t abort = 0;
  std::vector<std::unique_ptr<TestProxy>> proxies;
};

LoopbackConfig reordered(uint32_t depth = 256) {
  LoopbackConfig config{.max_in_flight = depth};
  config.link.order = LinkOrder::kReordered;
  config.link.seed = test::base_seed() + 1;
  return config;
}

/// What a test makes of the network: completes, in the order and number that it says.
class ScriptedEndpoint final : public Endpoint {
 public:
  using Script = std::function<std::vector<Event>(std::deque<Write>&)>;
  ScriptedEndpoint(LinkTraits traits, Script script)
      : traits_(traits), script_(std::move(script)) {}
  std::string address() const override { return {}; }
  Status connect(std::span<const std::string>) override { return Status::ok(); }
  Result<std::string> export_region(const HeapRegion&) override { return std::string(); }
  Status import_region(uint32_t, uint64_t, uint64_t, const std::string&) override {
    return Status::ok();
  }
  void forget_region(uint64_t) override {}
  LinkTraits traits() const override { return traits_; }
  Status post(std::span<const Write> writes) override {
    in_flight_.insert(in_flight_.end(), writes.begin(), writes.end());
    EXPECT_LE(in_flight_.size(), traits_.max_in_flight);
    return Status::ok();
  }
  Result<size_t> poll(std::span<Event> events) override {
    const std::vector<Event> now = script_(in_flight_);
    EXPECT_LE(now.size(), events.size());
    std::ranges::copy(now, events.begin());
    return now.size();
  }
  Status close() override { return Status::ok(); }
  EndpointStatistics statistics() const override { return {.retries = 17}; }

 private:
  const LinkTraits traits_;
  const Script script_;
  std::deque<Write> in_flight_;
};

/// Whether somebody sets the abort word.
bool trips(uint32_t* abort) {
  const uint64_t start_ns = Watchdog::now_ns();
  while (load_acquire<Scope::kSys>(abort) == 0) {
    if (Watchdog::now_ns() - start_ns > kLongNs) return false;
    std::this_thread::yield();
  }
  return true;
}

class ProxyOverEveryLink : public testing::TestWithParam<LinkOrder> {
 protected:
  static LoopbackConfig config(uint32_t depth = 256) {
    LoopbackConfig c = reordered(depth);
    c.link.order = GetParam();
    return c;
  }
};

TEST_P(ProxyOverEveryLink, TenThousandCommandsPassThroughAnySendDepth) {
  for (const uint32_t depth : {2u, 16u, 128u}) {
    TestCluster cluster(2, config(depth));
    test::fill_pattern(cluster.ranks.data(0), 4096, 3);
    for (uint32_t i = 0; i < 10'000; ++i) {
      ASSERT_TRUE(cluster.push(0, cluster.command(1, i % 64 * 64, 64, i % 64, i / 64 + 1)));
    }
    ASSERT_TRUE(cluster.proxies[0]->proxy->stop());
    EXPECT_EQ(cluster.proxies[0]->completed(), 10'000u);
    for (uint32_t flag = 0; flag < 64; ++flag) {
      ASSERT_TRUE(cluster.await_flag(1, flag, (10'000 - 1 - flag) / 64 + 1));
    }
    EXPECT_TRUE(test::has_pattern(cluster.ranks.data(1), 4096, 3));
    const ProxyStatistics s = cluster.proxies[0]->proxy->statistics();
    EXPECT_EQ(s.commands, 10'000u);
    EXPECT_EQ(s.bytes, 640'000u);
    EXPECT_GE(s.batches, 10'000u / 8);
    EXPECT_TRUE(cluster.proxies[1]->proxy->stop());
  }
}

TEST_P(ProxyOverEveryLink, RaisedFlagMeansThatItsOwnChunkIsThere) {
  constexpr uint64_t kChunk = 512;
  TestCluster cluster(3, config(), 3 * 2 * 8 * kChunk, 0xfffffff8);
  // Ranks 1 and 2 send 8 chunks to rank 0, epoch after epoch across the wrap; slots alternate.
  std::vector<std::thread> senders;
  for (uint16_t src = 1; src <= 2; ++src) {
    senders.emplace_back([&cluster, src] {
      for (uint32_t epoch = 0xfffffff9; epoch != 8; ++epoch) {
        for (uint32_t chunk = 0; chunk < 8; ++chunk) {
          const uint64_t offset = ((src * 2 + epoch % 2) * 8 + chunk) * kChunk;
          test::fill_pattern(cluster.ranks.data(src) + offset, kChunk, epoch + chunk);
          ASSERT_TRUE(
              cluster.push(src, cluster.command(0, offset, kChunk, src * 8 + chunk, epoch)));
        }
        // Credit: the receiver is done with this epoch.
        ASSERT_TRUE(cluster.await_flag(src, 40, epoch));
      }
    });
  }
  for (uint32_t epoch = 0xfffffff9; epoch != 8; ++epoch) {
    for (uint16_t src = 2; src >= 1; --src) {
      for (uint32_t chunk = 8; chunk-- > 0;) {
        ASSERT_TRUE(cluster.await_flag(0, src * 8 + chunk, epoch));
        const uint64_t offset = ((src * 2 + epoch % 2) * 8 + chunk) * kChunk;
        ASSERT_TRUE(test::has_pattern(cluster.ranks.data(0) + offset, kChunk, epoch + chunk));
      }
    }
    for (uint16_t src = 1; src <= 2; ++src) {
      ASSERT_TRUE(cluster.push(0, cluster.command(src, 0, 0, 40, epoch)));
    }
  }
  for (std::thread& s : senders) s.join();
  for (const auto& p : cluster.proxies) EXPECT_TRUE(p->proxy->stop());
}

TEST_P(ProxyOverEveryLink, FailedWriteTripsEveryRankAndIsNoCompletion) {
  LoopbackConfig failing = config();
  failing.link.fail_after = 0;
  TestCluster cluster(2, failing);
  ASSERT_TRUE(cluster.push(0, cluster.command(1, 0, 64, 5, 9)));
  EXPECT_FALSE(cluster.await_flag(1, 5, 9));  // ends by the abort word, long before its limit
  const Status error = cluster.proxies[0]->proxy->stop();
  EXPECT_EQ(error.code(), Code::kPeerFailed);
  for (const char* part : {"rank 0", "rank 1", "flag 5", "epoch 9"}) {
    EXPECT_NE(error.message().find(part), std::string::npos) << error.message();
  }
  const std::optional<FaultRecord> fault = cluster.proxies[0]->proxy->fault();
  ASSERT_TRUE(fault);
  EXPECT_EQ(fault->place, Place::kTransport);
  EXPECT_EQ(fault->rank, 0u);
  EXPECT_EQ(fault->peer, 1u);
  EXPECT_EQ(fault->chunk, 5u);
  EXPECT_EQ(fault->expected, 9u);
  EXPECT_EQ(cluster.proxies[0]->completed(), 0u);
  EXPECT_EQ(cluster.proxies[1]->proxy->stop().code(), Code::kPeerFailed);
  EXPECT_FALSE(cluster.proxies[1]->proxy->fault());
}

TEST_P(ProxyOverEveryLink, UnroutableCommandIsRefusedLoudly) {
  const auto refused = [](const std::function<void(Command&)>& spoil) {
    TestCluster cluster(2, config());
    Command c = cluster.command(1, 0, 64, 5, 1);
    spoil(c);
    EXPECT_TRUE(cluster.push(0, c));
    EXPECT_TRUE(trips(&cluster.abort));
    EXPECT_TRUE(cluster.proxies[0]->proxy->fault());
    EXPECT_EQ(cluster.proxies[0]->completed(), 0u);
    return cluster.proxies[0]->proxy->stop().code();
  };
  EXPECT_EQ(refused([](Command& c) { c.dst_rank = 2; }), Code::kInvalidArgument);
  EXPECT_EQ(refused([](Command& c) { c.dst_rank = 0; }), Code::kInvalidArgument);
  EXPECT_EQ(refused([](Command& c) { c.flag = kMaxFlags; }), Code::kInvalidArgument);
  EXPECT_EQ(refused([](Command& c) { c.local_address += 4096; }), Code::kInvalidArgument);
  EXPECT_EQ(refused([](Command& c) { c.remote_address += 4033; }), Code::kInvalidArgument);
  EXPECT_EQ(refused([](Command& c) { c.remote_address = 0; }), Code::kInvalidArgument);
}

TEST_P(ProxyOverEveryLink, StopWithASilentNetworkIsBoundedAndSaysSo) {
  LoopbackConfig silent = config();
  silent.link.link_us = 1e12;
  TestCluster cluster(2, silent, 4096, 0, 20'000'000);
  ASSERT_TRUE(cluster.push(0, cluster.command(1, 0, 64, 5, 9)));
  EXPECT_EQ(cluster.proxies[0]->proxy->stop().code(), Code::kTimeout);
  EXPECT_EQ(cluster.proxies[0]->completed(), 0u);
}

INSTANTIATE_TEST_SUITE_P(All, ProxyOverEveryLink,
                         testing::Values(LinkOrder::kInOrder, LinkOrder::kReordered),
                         [](const auto& test) {
                           return test.param == LinkOrder::kInOrder ? "InOrder" : "Reordered";
                         });

TEST(Proxy, StaleImmediatesRaiseNothing) {
  LoopbackConfig repeating = reordered();
  repeating.repeat_immediates = true;
  TestCluster cluster(2, repeating);
  for (uint32_t epoch = 1; epoch <= 100; ++epoch) {
    ASSERT_TRUE(cluster.push(0, cluster.command(1, 0, 16, 7, epoch)));
    ASSERT_TRUE(cluster.await_flag(1, 7, epoch));
  }
  ASSERT_TRUE(cluster.proxies[0]->proxy->stop());
  ASSERT_TRUE(cluster.proxies[1]->proxy->stop());
  EXPECT_EQ(*cluster.ranks.flag(1, 7), 100u);
  EXPECT_EQ(cluster.proxies[1]->proxy->statistics().arrivals, 100u);
  EXPECT_EQ(cluster.proxies[1]->proxy->statistics().stale_arrivals, 99u);
}

TEST(Proxy, LostCompletionEndsInTimeout) {
  TestRanks ranks(2, 64);
  uint32_t abort = 0;
  TestProxy p(ranks, 0,
              std::make_unique<ScriptedEndpoint>(
                  LinkTraits{.in_order = true, .immediate_bits = 0, .max_in_flight = 4},
                  [](std::deque<Write>&) { return std::vector<Event>{}; }),
              &abort, 20'000'000);
  ASSERT_TRUE(p.queue.push({0, 0, 0, 3, 5, 1}, p.dog));
  ASSERT_TRUE(trips(&abort));
  ASSERT_TRUE(p.proxy->fault());
  EXPECT_EQ(p.proxy->fault()->chunk, 5u);
  EXPECT_EQ(p.proxy->stop().code(), Code::kTimeout);
  EXPECT_EQ(p.completed(), 0u);
}

TEST(Proxy, CompletionOfAWriteTwiceIsAFault) {
  TestRanks ranks(2, 64);
  uint32_t abort = 0;
  TestProxy p(ranks, 0,
              std::make_unique<ScriptedEndpoint>(
                  LinkTraits{.in_order = true, .immediate_bits = 0, .max_in_flight = 4},
                  [](std::deque<Write>& in_flight) {
                    std::vector<Event> events;
                    if (in_flight.size() == 2) {
                      events.assign(2, {.kind = Event::Kind::kCompleted, .id = in_flight[0].id});
                    }
                    return events;
                  }),
              &abort);
  ASSERT_TRUE(p.queue.push({0, 0, 64, 3, 5, 1}, p.dog));
  ASSERT_TRUE(trips(&abort));
  EXPECT_EQ(p.proxy->stop().code(), Code::kInternal);
  EXPECT_EQ(p.completed(), 0u);
}

TEST(Proxy, SpaceOfACommandComesBackOnlyWithAllBeforeIt) {
  // The network completes the newest write first, and never more than is allowed in flight.
  TestRanks ranks(2, 64);
  uint32_t abort = 0;
  uint64_t newest = 0;  // of the script, so of the proxy's thread
  TestProxy p(ranks, 0,
              std::make_unique<ScriptedEndpoint>(
                  LinkTraits{.in_order = false, .immediate_bits = 32, .max_in_flight = 16},
                  [&newest](std::deque<Write>& in_flight) {
                    std::vector<Event> events;
                    if (in_flight.empty()) return events;
                    newest = std::max(newest, in_flight.back().id);
                    events.push_back({.kind = Event::Kind::kCompleted, .id = in_flight.back().id});
                    in_flight.pop_back();
                    return events;
                  }),
              &abort);
  for (uint32_t i = 0; i < 1000; ++i) {
    ASSERT_TRUE(p.queue.push({0, 0, 64, i, 5, 1}, p.dog));
  }
  EXPECT_TRUE(p.proxy->stop());
  EXPECT_EQ(p.completed(), 1000u);
  EXPECT_EQ(Completion::position_of(newest), 999u);
  const ProxyStatistics s = p.proxy->statistics();
  EXPECT_EQ(s.commands, 1000u);
  EXPECT_EQ(s.bytes, 64'000u);
  EXPECT_EQ(s.retries, 17u);  // what the endpoint says
}

TEST(Proxy, LinkThatCannotTellArrivalIsRefusedAtStart) {
  TestRanks ranks(2, 64);
  uint32_t abort = 0;
  const auto proxy =
      Proxy::start({.rank = 0,
                    .num_ranks = 2,
                    .queue = {},
                    .endpoint = std::make_unique<ScriptedEndpoint>(
                        LinkTraits{.in_order = false, .immediate_bits = 16, .max_in_flight = 16},
                        [](std::deque<Write>&) { return std::vector<Event>{}; }),
                    .heap = ranks.heaps[0].get(),
                    .abort = &abort,
                    .limit_ns = kLongNs});
  EXPECT_EQ(proxy.status().code(), Code::kUnsupported);
}

}  // namespace
}  // namespace mkernel
