// What may be written from and to: the own regions with their registrations, and the peers'.
#pragma once
#include <array>
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <utility>
#include <vector>

#include "memory/symmetric_heap.h"
#include "network/verbs/address.h"
#include "network/verbs/api.h"
#include "network/verbs/settings.h"

namespace mkernel::verbs {

/// A place in memory as NICs name it: the same address on every rail, and a key for each.
struct Location {
  uint64_t address = 0;
  std::array<uint32_t, kMaxRails> keys{};
};

/// Threads: any.
class Regions {
 public:
  using Registrations = std::vector<std::unique_ptr<MemoryRegion>>;  // by rail

  void add_own(const HeapRegion& region, Registrations registrations);
  /// What peers need to write to an own region; none if there is no such region.
  std::optional<RegionKey> key_of_own(uint64_t address) const;
  void add_peer(uint32_t peer, uint64_t address, uint64_t bytes, const RegionKey& key);
  void forget(uint64_t address);
  void clear();

  /// Where `bytes` at a heap address lie; none unless they are in one region.
  std::optional<Location> own(uint64_t address, uint64_t bytes) const;
  std::optional<Location> of_peer(uint32_t peer, uint64_t address, uint64_t bytes) const;

 private:
  struct Own {
    Registrations registrations;
    uint64_t bytes;
    Location begin = {};
  };
  struct Peers {
    uint64_t bytes;
    Location begin = {};
  };

  mutable std::mutex mutex_;
  std::map<uint32_t, Own> own_;                             // by region number
  std::map<std::pair<uint32_t, uint32_t>, Peers> of_peer_;  // by region number and peer
};

}  // namespace mkernel::verbs
