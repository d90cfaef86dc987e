// The regions that writes may touch: this rank's, and by key those of its peers.
// Threads: any.
#pragma once
#include <cstdint>
#include <mutex>
#include <optional>
#include <unordered_map>
#include <vector>

#include "memory/heap_address.h"
#include "memory/symmetric_heap.h"
#include "network/libfabric/port.h"

namespace mkernel::libfabric {

struct Source {
  const char* data;
  void* descriptor;
};
struct Target {
  uint64_t address;
  uint64_t key;
};

class Regions {
 public:
  explicit Regions(uint32_t num_ranks) : imported_(num_ranks) {}

  /// False if the region is there already.
  bool add_own(const HeapRegion& region, Registration registration) {
    const std::lock_guard lock(mutex_);
    return own_
        .try_emplace(region_of(region.address), region.data, region.bytes, std::move(registration))
        .second;
  }
  void add_imported(uint32_t peer, uint64_t address, uint64_t bytes, const RemoteMemory& memory) {
    const std::lock_guard lock(mutex_);
    imported_[peer].insert_or_assign(region_of(address), Imported{bytes, memory});
  }
  void forget(uint64_t address) {
    const std::lock_guard lock(mutex_);
    own_.erase(region_of(address));
    for (auto& regions : imported_) regions.erase(region_of(address));
  }
  void forget_all() {
    const std::lock_guard lock(mutex_);
    own_.clear();
  }

  /// Where a range of heap addresses lies; none unless all of it lies in one region.
  std::optional<Source> source(uint64_t address, uint64_t bytes) const {
    const std::lock_guard lock(mutex_);
    const auto it = own_.find(region_of(address));
    if (it == own_.end() || !holds(it->second.bytes, address, bytes)) return std::nullopt;
    return Source{it->second.data + offset_of(address), it->second.registration.descriptor()};
  }
  std::optional<Target> target(uint32_t peer, uint64_t address, uint64_t bytes) const {
    const std::lock_guard lock(mutex_);
    const auto it = imported_[peer].find(region_of(address));
    if (it == imported_[peer].end() || !holds(it->second.bytes, address, bytes)) {
      return std::nullopt;
    }
    return Target{it->second.memory.base + offset_of(address), it->second.memory.key};
  }

 private:
  struct Own {
    Own(char* d, uint64_t b, Registration r) : data(d), bytes(b), registration(std::move(r)) {}
    char* data;
    uint64_t bytes;
    Registration registration;
  };
  struct Imported {
    uint64_t bytes;
    RemoteMemory memory;
  };
  static bool holds(uint64_t region_bytes, uint64_t address, uint64_t bytes) {
    const uint64_t offset = offset_of(address);
    return offset <= region_bytes && bytes <= region_bytes - offset;
  }

  mutable std::mutex mutex_;
  std::unordered_map<uint32_t, Own> own_;
  std::vector<std::unordered_map<uint32_t, Imported>> imported_;  // by peer
};

}  // namespace mkernel::libfabric
