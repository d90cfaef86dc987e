// Ranks that come late, and ranks that stop: which limit a wait has, from the flags of one launch.
#include <gtest/gtest.h>

#include <chrono>
#include <thread>
#include <vector>

#include "protocol/all_gather_gemm.h"

namespace mkernel {
namespace {

constexpr uint64_t kMs = 1'000'000;
constexpr uint32_t kEpoch = 5;
constexpr uint32_t kChunks = 4;

/// What a wait for rows looks at: rank 1 of three on one node, with flags of its own.
class Waiter {
 public:
  explicit Waiter(WaitLimits limits) {
    op_.cluster = {1, 3};
    op_.rank = 1;
    op_.gpu = 1;
    op_.flags = {.first = 3, .world = 3, .chunks = kChunks};
    words_.assign((op_.flags.first + op_.flags.size()) * kFlagStride, kEpoch - 1);
    regions_[1] = words_.data();
    op_.peer_flags = regions_;
    op_.state = &state_;
    op_.dog = {&abort_, &claim_, &fault, limits, 1};
  }
  void raise(uint32_t slice, uint32_t chunk, uint32_t epoch = kEpoch) {
    const uint32_t flag = op_.flags.arrived(op_.flags.slot_of(kEpoch), slice, chunk);
    store_release<Scope::kSys>(op_.flag(1, flag), epoch);
  }
  bool await(uint32_t slice, uint32_t chunk) {
    return await_chunk(op_, kEpoch, slice, chunk, tally_);
  }
  bool await_credit_of(uint32_t epoch) { return await_credit(op_, epoch, tally_); }

  FaultRecord fault{};

 private:
  std::vector<uint32_t> words_;
  uint32_t abort_ = 0, claim_ = 0;
  LaunchState state_;
  Tally tally_;
  AllGatherGemmWork op_;
  uint32_t* regions_[3] = {};
};

TEST(LateRanks, WaitForARankThatStoppedEndsAtTheLimitOfProgress) {
  Waiter waiter({20 * kMs, 3'600'000 * kMs});
  waiter.raise(2, 3);  // any chunk of its slice
  EXPECT_FALSE(waiter.await(2, 0));
  EXPECT_EQ(waiter.fault.limit, Limit::kProgress);
  EXPECT_EQ(waiter.fault.peer, 2u);
}

TEST(LateRanks, WaitForARankThatIsNotHeardEndsAtTheLimitOfContact) {
  Waiter waiter({20 * kMs, 60 * kMs});
  waiter.raise(0, 0);              // another one's rows
  waiter.raise(2, 1, kEpoch - 2);  // an earlier launch's in this slot
  EXPECT_FALSE(waiter.await(2, 0));
  EXPECT_EQ(waiter.fault.limit, Limit::kContact);
  EXPECT_EQ(waiter.fault.peer, 2u);
}

TEST(LateRanks, WaitForOwnRowsHasTheLimitOfProgress) {
  Waiter waiter({20 * kMs, 3'600'000 * kMs});
  EXPECT_FALSE(waiter.await(1, 0));
  EXPECT_EQ(waiter.fault.limit, Limit::kProgress);
}

TEST(LateRanks, WaitForCreditHasTheLimitOfContact) {
  Waiter waiter({20 * kMs, 60 * kMs});
  for (uint32_t chunk = 0; chunk < kChunks; ++chunk) waiter.raise(2, chunk);
  EXPECT_FALSE(waiter.await_credit_of(kEpoch));
  EXPECT_EQ(waiter.fault.place, Place::kSlotFree);
  EXPECT_EQ(waiter.fault.limit, Limit::kContact);
}

TEST(LateRanks, RowsThatComeAfterTheLimitOfProgressAreTaken) {
  Waiter waiter({20 * kMs, 3'600'000 * kMs});
  std::thread late([&] {
    std::this_thread::sleep_for(std::chrono::milliseconds(60));
    waiter.raise(2, 0);
  });
  EXPECT_TRUE(waiter.await(2, 0));
  late.join();
}

}  // namespace
}  // namespace mkernel
