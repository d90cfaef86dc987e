// libfabric between processes: chunks both ways, a peer that is killed, one that is never there.
#include <gtest/gtest.h>

#include <array>
#include <chrono>

#include "transport/chunk_exchange.h"

namespace mkernel::test {
namespace {

class LibfabricProcesses : public testing::TestWithParam<Staging> {
 protected:
  void SetUp() override {
    if (const std::string reason = why_no_libfabric(); !reason.empty()) GTEST_SKIP() << reason;
    options_ = libfabric_on_loopback();
    options_.staging = GetParam();
    options_.staging_chunk_bytes = 10'000;
    options_.staging_slots = 3;
  }
  LibfabricOptions options_;
};

int report(const std::string& error) {
  if (!error.empty()) std::fprintf(stderr, "child: %s\n", error.c_str());
  return error.empty() ? 0 : 1;
}

TEST_P(LibfabricProcesses, ThousandsOfChunksOfMixedSizesArriveWhole) {
  options_.max_in_flight = 32;
  ChildProcess child(
      [&](ByteChannel& channel) { return report(ChunkExchange({}, 1, options_).run(channel)); });
  EXPECT_EQ(ChunkExchange({}, 0, options_).run(child.channel()), "");
  EXPECT_EQ(child.wait(), 0);
}

/// Writes until something fails; what the endpoint then says.
std::string write_until_failure(PairRank& rank, uint64_t bytes, std::chrono::seconds limit,
                                const std::function<void(uint32_t completed)>& each) {
  const auto deadline = std::chrono::steady_clock::now() + limit;
  for (uint32_t posted = 0, completed = 0; std::chrono::steady_clock::now() < deadline;) {
    if (posted - completed < 8 && !rank.write(0, 0, bytes, posted++)) return "not posted";
    std::array<Event, 8> events;
    const Result<size_t> count = rank.endpoint().poll(events);
    if (!count) return count.status().message();
    for (size_t i = 0; i < count.value(); ++i) {
      if (events[i].kind == Event::Kind::kFailed) return rank.endpoint().last_error();
      each(++completed);
    }
  }
  return "nothing failed";
}

TEST_P(LibfabricProcesses, KilledPeerEndsInAFailureThatNamesIt) {
  constexpr uint64_t kBytes = 200'000;
  ChildProcess child([&](ByteChannel& channel) {
    PairRank rank(1, kBytes, options_);
    if (const std::string error = rank.meet(channel); !error.empty()) return report(error);
    std::array<Event, 8> events;
    while (rank.endpoint().poll(events)) {
    }
    return 1;
  });
  // It may die with everything delivered to it and nothing confirmed: then this limit ends it.
  constexpr uint64_t kLimitNs = 5'000'000'000;
  PairRank rank(0, kBytes, options_, kLimitNs);
  ASSERT_EQ(rank.meet(child.channel()), "");
  const std::string error =
      write_until_failure(rank, kBytes, std::chrono::seconds(20), [&](uint32_t completed) {
        if (completed == 20) child.kill();
      });
  EXPECT_NE(error.find("to rank 1"), std::string::npos) << error;
  EXPECT_EQ(child.wait(), -SIGKILL);
  EXPECT_TRUE(rank.endpoint().close());
}

TEST_P(LibfabricProcesses, PeerThatIsNotThereFailsWithinTheLimit) {
  constexpr uint64_t kLimitNs = 300'000'000;
  ChildProcess child([&](ByteChannel& channel) {
    PairRank rank(1, 64, options_);
    return report(rank.meet(channel));
  });
  PairRank rank(0, 64, options_, kLimitNs);
  ASSERT_EQ(rank.meet(child.channel()), "");
  ASSERT_EQ(child.wait(), 0);
  const std::string error =
      write_until_failure(rank, 64, std::chrono::seconds(20), [](uint32_t) { ADD_FAILURE(); });
  EXPECT_NE(error.find("to rank 1"), std::string::npos) << error;
}

INSTANTIATE_TEST_SUITE_P(Both, LibfabricProcesses,
                         testing::Values(Staging::kAuto, Staging::kAlways), [](const auto& test) {
                           return test.param == Staging::kAuto ? "Direct" : "Staged";
                         });

}  // namespace
}  // namespace mkernel::test
