#include <gtest/gtest.h>

#include <array>
#include <cstring>
#include <thread>
#include <vector>

#include "core/sync.h"
#include "memory/symmetric_heap.h"
#include "transport/test_ranks.h"

namespace mkernel {
namespace {

using test::value_of;

/// Gives out addresses without memory behind them, so that sizes beyond any machine can be tried.
class PretendedMemory final : public DeviceMemory {
 public:
  Result<void*> allocate(uint64_t bytes) override {
    const uint64_t address = next_;
    next_ += bytes;
    return reinterpret_cast<void*>(address);
  }
  Result<void*> allocate_pinned(uint64_t bytes) override { return allocate(bytes); }
  void release(void*) override { ++released; }
  bool host_accessible() const override { return false; }
  Result<void*> allocate_shared(uint64_t bytes) override { return allocate(bytes); }
  Result<int> export_shared(void*) override { return Status(Code::kUnsupported, ""); }
  Result<void*> import_shared(int, uint64_t) override { return Status(Code::kUnsupported, ""); }
  Status upload(void*, const void*, uint64_t) override { return Status::ok(); }
  Status download(void*, const void*, uint64_t) override { return Status::ok(); }
  Result<uint64_t> peek(uint64_t*) override { return uint64_t{0}; }
  Result<std::unique_ptr<CopyChannel>> create_channel() override {
    return Status(Code::kUnsupported, "");
  }
  int released = 0;

 private:
  uint64_t next_ = uint64_t{1} << 40;
};

TEST(HeapAddress, HoldsRegionAndOffsetBeyond32Bits) {
  for (const uint64_t offset :
       {uint64_t{0}, (uint64_t{1} << 31) - 1, (uint64_t{1} << 31) + 1, (uint64_t{1} << 32) - 1,
        uint64_t{1} << 32, (uint64_t{1} << 32) + 1, kMaxRegionBytes - 1}) {
    for (const uint32_t region : {1u, 2u, kMaxRegions - 1}) {
      const uint64_t address = heap_address(region, 0) + offset;
      EXPECT_EQ(region_of(address), region);
      EXPECT_EQ(offset_of(address), offset);
    }
  }
}

TEST(SymmetricHeap, ResolvesOffsetsBeyond4GiBExactly) {
  PretendedMemory memory;
  const auto heap = value_of(SymmetricHeap::create(memory, 0, uint64_t{1} << 40));
  const HeapRegionPtr region = value_of(heap->allocate(uint64_t{10} << 30));
  for (const uint64_t offset : {(uint64_t{1} << 31) - 1, (uint64_t{1} << 32) - 1,
                                (uint64_t{1} << 32) + 1, (uint64_t{10} << 30) - 16}) {
    const auto at = [&](uint64_t o) { return reinterpret_cast<uint64_t>(region->data) + o; };
    EXPECT_EQ(reinterpret_cast<uint64_t>(heap->resolve(region->address + offset, 16)), at(offset));
  }
  EXPECT_EQ(heap->resolve(region->address + (uint64_t{10} << 30) - 15, 16), nullptr);
  EXPECT_EQ(heap->resolve(region->address, (uint64_t{10} << 30) + 1), nullptr);
  EXPECT_EQ(heap->resolve(region->address + 1, ~uint64_t{0}), nullptr);
}

TEST(SymmetricHeap, AddressWithoutALiveRegionResolvesToNothing) {
  const auto memory = create_host_memory();
  const auto heap = value_of(SymmetricHeap::create(*memory, 0, 1 << 20));
  EXPECT_EQ(heap->resolve(0, 0), nullptr);
  HeapRegionPtr region = value_of(heap->allocate(64));
  const uint64_t address = region->address;
  EXPECT_EQ(heap->resolve(address, 64), region->data);
  region.reset();
  EXPECT_EQ(heap->resolve(address, 1), nullptr);
  // A newer plan does not inherit the address either.
  region = value_of(heap->allocate(64));
  EXPECT_NE(region->address, address);
  EXPECT_EQ(heap->resolve(address, 1), nullptr);
}

TEST(SymmetricHeap, LimitIsNamedAndComesBackWithTheRegion) {
  const auto memory = create_host_memory();
  const auto heap = value_of(SymmetricHeap::create(*memory, 7, 1000));
  HeapRegionPtr region = value_of(heap->allocate(600));
  const Status refused = heap->allocate(401).status();
  EXPECT_EQ(refused.code(), Code::kInvalidArgument);
  for (const char* part : {"rank 7", "401", "600", "heap_bytes_limit = 1000"}) {
    EXPECT_NE(refused.message().find(part), std::string::npos) << refused.message();
  }
  EXPECT_TRUE(heap->allocate(400).is_ok());
  region.reset();
  EXPECT_TRUE(heap->allocate(1000).is_ok());
  EXPECT_EQ(heap->allocate(~uint64_t{0}).status().code(), Code::kInvalidArgument);
  EXPECT_EQ(SymmetricHeap::create(*memory, 0, kMaxRegionBytes + 1).status().code(),
            Code::kInvalidArgument);
}

TEST(SymmetricHeap, RegionNumbersRunOutLoudly) {
  PretendedMemory memory;
  const auto heap = value_of(SymmetricHeap::create(memory, 0, 1000));
  for (uint32_t i = 1; i < kMaxRegions; ++i) ASSERT_TRUE(heap->allocate(1).is_ok());
  EXPECT_EQ(heap->allocate(1).status().code(), Code::kUnavailable);
}

TEST(SymmetricHeap, PlanWithoutWorkSpaceStillHasAnAddress) {
  const auto memory = create_host_memory();
  const auto heap = value_of(SymmetricHeap::create(*memory, 0, 0));
  const HeapRegionPtr region = value_of(heap->allocate(0));
  EXPECT_EQ(heap->resolve(region->address, 0), region->data);
  EXPECT_EQ(heap->resolve(region->address, 1), nullptr);
}

TEST(SymmetricHeap, SameCallsGiveTheSameAddressesOnEveryRank) {
  const auto memory = create_host_memory();
  std::vector<std::unique_ptr<SymmetricHeap>> heaps;
  for (uint32_t rank = 0; rank < 3; ++rank) {
    heaps.push_back(value_of(SymmetricHeap::create(*memory, rank, 1 << 20)));
  }
  const auto calls = [](SymmetricHeap& heap) {
    HeapRegionPtr a = value_of(heap.allocate(100));
    FlagRangePtr f = value_of(heap.allocate_flags(10, 0));
    const FlagRangePtr g = value_of(heap.allocate_flags(5, 0));
    a.reset();
    f.reset();
    const HeapRegionPtr b = value_of(heap.allocate(200));
    const FlagRangePtr h = value_of(heap.allocate_flags(7, 0));
    return std::array<uint64_t, 3>{b->address, g->first, h->first};
  };
  const auto first = calls(*heaps[0]);
  for (const auto& heap : {heaps[1].get(), heaps[2].get()}) EXPECT_EQ(calls(*heap), first);
}

TEST(SymmetricHeap, RanksThatDidNotMakeTheSameCallsAreNamed) {
  const std::array<uint64_t, 3> same{5, 5, 5};
  const std::array<uint64_t, 3> differ{5, 5, 6};
  EXPECT_TRUE(check_symmetric(same));
  EXPECT_TRUE(check_symmetric({}));
  EXPECT_EQ(check_symmetric(differ).code(), Code::kInternal);
  EXPECT_NE(check_symmetric(differ).message().find("rank 2"), std::string::npos);
}

TEST(SymmetricHeap, FlagRangesAreDistinctReusedAndExhausted) {
  const auto memory = create_host_memory();
  const auto heap = value_of(SymmetricHeap::create(*memory, 0, 0));
  const FlagRangePtr a = value_of(heap->allocate_flags(100, 0));
  FlagRangePtr b = value_of(heap->allocate_flags(50, 0));
  const FlagRangePtr c = value_of(heap->allocate_flags(kMaxFlags - 150, 0));
  EXPECT_EQ(a->first, 0u);
  EXPECT_EQ(b->first, 100u);
  EXPECT_EQ(c->first, 150u);
  const Status refused = heap->allocate_flags(1, 0).status();
  EXPECT_EQ(refused.code(), Code::kInvalidArgument);
  EXPECT_NE(refused.message().find(std::to_string(kMaxFlags)), std::string::npos);
  b.reset();
  EXPECT_FALSE(heap->allocate_flags(51, 0).is_ok());
  EXPECT_EQ(value_of(heap->allocate_flags(50, 0))->first, 100u);
  EXPECT_FALSE(heap->allocate_flags(0, 0).is_ok());
}

TEST(SymmetricHeap, ReusedFlagsStartAtTheEpochOfTheirNewPlan) {
  const auto memory = create_host_memory();
  const auto heap = value_of(SymmetricHeap::create(*memory, 0, 0));
  FlagRangePtr range = value_of(heap->allocate_flags(3, 0));
  store_relaxed<Scope::kSys>(heap->flag(1), 77u);
  range.reset();
  range = value_of(heap->allocate_flags(3, 0xfffffff0));
  for (uint32_t i = 0; i < 3; ++i) {
    EXPECT_EQ(*heap->flag(range->first + i), 0xfffffff0u);
    EXPECT_EQ(heap->flag_shadow()[range->first + i], 0xfffffff0u);
  }
}

TEST(SymmetricHeap, SignalSentAsSoonAsAFlagIsKnownIsNotErased) {
  const auto memory = create_host_memory();
  const auto heap = value_of(SymmetricHeap::create(*memory, 0, 0));
  constexpr uint32_t kRounds = 1000;
  uint32_t known = 0;  // 1 + index of the flag of this round
  std::thread peer([&] {
    for (uint32_t round = 1; round <= kRounds; ++round) {
      while (!reached(load_acquire<Scope::kSys>(&known), round)) std::this_thread::yield();
      store_release<Scope::kSys>(heap->flag(round - 1), round);
    }
  });
  std::vector<FlagRangePtr> ranges;
  for (uint32_t round = 1; round <= kRounds; ++round) {
    ranges.push_back(value_of(heap->allocate_flags(1, 0)));
    store_release<Scope::kSys>(&known, ranges.back()->first + 1);
  }
  peer.join();
  for (uint32_t round = 1; round <= kRounds; ++round) {
    ASSERT_EQ(*heap->flag(round - 1), round);
  }
}

TEST(SymmetricHeap, ReleasesEverythingToItsDevice) {
  PretendedMemory memory;
  {
    const auto heap = value_of(SymmetricHeap::create(memory, 0, 100));
    const HeapRegionPtr region = value_of(heap->allocate(10));
  }
  EXPECT_EQ(memory.released, 2);  // the region and the flags
}

TEST(HostMemory, PinnedMemoryIsZeroedAndEverythingIsAligned) {
  const auto memory = create_host_memory();
  for (const uint64_t bytes : {1, 255, 256, 100'000}) {
    void* const p = value_of(memory->allocate(bytes));
    auto* const q = static_cast<char*>(value_of(memory->allocate_pinned(bytes)));
    EXPECT_EQ(reinterpret_cast<uint64_t>(p) % 256, 0u);
    EXPECT_EQ(reinterpret_cast<uint64_t>(q) % 256, 0u);
    EXPECT_EQ(std::count(q, q + bytes, '\0'), static_cast<std::ptrdiff_t>(bytes));
    memory->release(p);  // q goes with the memory
  }
}

TEST(HostMemory, MoreThanThereIsIsRefused) {
  const auto memory = create_host_memory();
  EXPECT_EQ(memory->allocate(~uint64_t{0}).status().code(), Code::kUnavailable);
}

}  // namespace
}  // namespace mkernel
