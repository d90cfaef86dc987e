// What tests of the network need around it: ranks with heaps on the host machine, patterns, seeds.
#pragma once
#include <gtest/gtest.h>

#include <cstdlib>
#include <cstring>
#include <memory>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "memory/symmetric_heap.h"
#include "network/loopback.h"

namespace mkernel::test {

/// The seed of a random test: --gtest_random_seed=N repeats the run that printed N.
inline uint64_t base_seed() { return static_cast<uint64_t>(GTEST_FLAG_GET(random_seed)); }

/// For set-up that has no reason to fail.
template <class T>
T value_of(Result<T> result) {
  if (!result) {
    ADD_FAILURE() << result.status().message();
    std::abort();
  }
  return std::move(result).value();
}

/// Ranks with one region and one flag range each, in one process.
struct TestRanks {
  TestRanks(uint32_t num_ranks, uint64_t region_bytes, uint32_t num_flags = 64,
            uint32_t first_epoch = 0,
            std::unique_ptr<DeviceMemory> device_memory = create_host_memory())
      : memory(std::move(device_memory)) {
    for (uint32_t rank = 0; rank < num_ranks; ++rank) {
      heaps.push_back(value_of(SymmetricHeap::create(*memory, rank, uint64_t{1} << 30)));
      regions.push_back(value_of(heaps.back()->allocate(region_bytes)));
      flags.push_back(value_of(heaps.back()->allocate_flags(num_flags, first_epoch)));
      heap_of_rank.push_back(heaps.back().get());
      std::memset(regions.back()->data, 0, region_bytes);
    }
  }
  uint64_t address() const { return regions[0]->address; }  // the same on every rank
  char* data(uint32_t rank) const { return regions[rank]->data; }
  uint32_t* flag(uint32_t rank, uint32_t i) const { return heaps[rank]->flag(i); }

  std::unique_ptr<DeviceMemory> memory;
  std::vector<std::unique_ptr<SymmetricHeap>> heaps;
  std::vector<HeapRegionPtr> regions;
  std::vector<FlagRangePtr> flags;
  std::vector<SymmetricHeap*> heap_of_rank;
};

/// Does what sets up a cluster: exchanges the endpoints' addresses and the keys of all regions.
inline void connect_all(std::span<const std::unique_ptr<Endpoint>> endpoints,
                        const TestRanks& ranks) {
  std::vector<std::string> addresses;
  for (const auto& endpoint : endpoints) addresses.push_back(endpoint->address());
  for (const auto& endpoint : endpoints) {
    const Status connected = endpoint->connect(addresses);
    ASSERT_TRUE(connected) << connected.to_string();
  }
  for (uint32_t owner = 0; owner < endpoints.size(); ++owner) {
    const HeapRegion& region = *ranks.regions[owner];
    const std::string key = value_of(endpoints[owner]->export_region(region));
    for (uint32_t rank = 0; rank < endpoints.size(); ++rank) {
      if (rank == owner) continue;
      const Status imported =
          endpoints[rank]->import_region(owner, region.address, region.bytes, key);
      ASSERT_TRUE(imported) << imported.to_string();
    }
  }
}

/// Bytes that differ from place to place and from key to key.
inline char pattern_byte(uint64_t key, uint64_t i) {
  const uint64_t x = (key * 0x9e3779b97f4a7c15u + i + 1) * 0xbf58476d1ce4e5b9u;
  return static_cast<char>((x >> 56) | 1);  // never 0, which is what memory starts with
}
inline void fill_pattern(char* data, uint64_t bytes, uint64_t key) {
  for (uint64_t i = 0; i < bytes; ++i) data[i] = pattern_byte(key, i);
}
/// Looks at the last 16 bytes first: they are what a signal most likely overtakes.
inline testing::AssertionResult has_pattern(const char* data, uint64_t bytes, uint64_t key) {
  for (uint64_t i = bytes; i-- > 0;) {
    if (data[i] != pattern_byte(key, i)) {
      return testing::AssertionFailure() << "byte " << i << " of " << bytes << " is missing";
    }
  }
  return testing::AssertionSuccess();
}

}  // namespace mkernel::test
