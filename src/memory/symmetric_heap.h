// The memory of one rank that its peers and the network write into: data regions and one flag
// region. A plan takes one region and one flag range from the heap of every rank.
//
// Each region is a device allocation of its own, named by (region number, offset) packed in 64
// bits. So plans of unknown size come and go without a reserved maximum, without fragmentation and
// without moving anything, and a region is the unit that is exported to other processes and
// registered with a NIC. Region numbers are never used twice: a late or wrong address of a plan
// that is gone resolves to nothing, not into the memory of a newer plan.
// Between processes a region is an allocation that the host's other processes can map
// (HeapReach::kHost), and MappedHeap is what they see of it.
//
// Symmetry: ranks that make the same calls in the same order get the same addresses and flags;
// check_symmetric() compares them.
#pragma once
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <span>

#include <mkernel/status.h>

#include "core/flag_word.h"
#include "memory/device_memory.h"
#include "memory/heap_address.h"

namespace mkernel {

struct HeapRegion {
  uint64_t address;  // heap address of the first byte, the same on every rank
  uint64_t bytes;
  char* data;
};

struct FlagRange {
  uint32_t first;  // index of the first flag, the same on every rank
  uint32_t count;
};

/// A rank's heap as this process reaches it, where it lives here or is mapped here: what a network
/// within a host needs of it. Threads: any.
class HeapView {
 public:
  virtual ~HeapView() = default;
  /// The pointer behind a heap address; null unless all `bytes` lie in one live region.
  virtual char* resolve(uint64_t address, uint64_t bytes) const = 0;
  /// Device memory, kFlagRegionBytes. Writers: peers, in-order networks, the rank's proxy.
  virtual uint32_t* flag_region() const = 0;
  uint32_t* flag(uint32_t index) const { return flag_word(flag_region(), index); }
};

/// Live regions by number. Threads: any.
class RegionTable {
 public:
  /// The entry stays where it is until it is removed.
  const HeapRegion* add(const HeapRegion& region);
  void remove(uint64_t address);
  char* resolve(uint64_t address, uint64_t bytes) const;

 private:
  mutable std::mutex mutex_;
  std::map<uint32_t, HeapRegion> regions_;
};

class SymmetricHeap;

/// Gives a region or a flag range back to its heap, which must still live. To be done only when
/// the plan is quiet on every rank: no launch running, no write in flight.
struct GiveBack {
  SymmetricHeap* heap = nullptr;
  void operator()(const HeapRegion* region) const;
  void operator()(const FlagRange* range) const;
};
using HeapRegionPtr = std::unique_ptr<const HeapRegion, GiveBack>;
using FlagRangePtr = std::unique_ptr<const FlagRange, GiveBack>;

/// Who maps a heap's memory beside its own process.
enum class HeapReach : uint8_t { kProcess, kHost };

/// Threads: any. The DeviceMemory must outlive the heap.
class SymmetricHeap final : public HeapView {
 public:
  /// A heap without regions. `bytes_limit` is ClusterOptions::heap_bytes_limit.
  static Result<std::unique_ptr<SymmetricHeap>> create(DeviceMemory& memory, uint32_t rank,
                                                       uint64_t bytes_limit,
                                                       HeapReach reach = HeapReach::kProcess);
  ~SymmetricHeap() override;
  SymmetricHeap(const SymmetricHeap&) = delete;
  SymmetricHeap& operator=(const SymmetricHeap&) = delete;

  /// A new region with undefined contents.
  /// Errors: invalid_argument if it would exceed the limit; unavailable if the device is full.
  Result<HeapRegionPtr> allocate(uint64_t bytes);

  /// Regions ever made, and how to catch up with a rank that has made more: after a call that
  /// failed on some ranks, all must go on with the same number.
  uint32_t num_regions() const;
  void skip_regions_to(uint32_t num_regions);

  /// `count` flags that all hold `initial`. They are set before their index is known to anybody,
  /// and by the host never again: a signal cannot be erased.
  Result<FlagRangePtr> allocate_flags(uint32_t count, uint32_t initial);

  char* resolve(uint64_t address, uint64_t bytes) const override {
    return regions_.resolve(address, bytes);
  }
  uint32_t* flag_region() const override { return flags_; }

  /// Host copy of the flags that the proxy raises, so that it need not read the device.
  /// Writers: the proxy (sys, relaxed), and allocate_flags before the flag is known.
  uint32_t* flag_shadow() const { return flag_shadow_.get(); }

  DeviceMemory& memory() const { return memory_; }

 private:
  friend GiveBack;
  SymmetricHeap(DeviceMemory& memory, uint32_t rank, uint64_t bytes_limit, HeapReach reach);
  Result<void*> allocate_memory(uint64_t bytes) const;
  void release(const HeapRegion* region);
  void release(const FlagRange* range);

  DeviceMemory& memory_;
  const uint32_t rank_;
  const uint64_t bytes_limit_;
  const HeapReach reach_;
  uint32_t* flags_ = nullptr;
  std::unique_ptr<uint32_t[]> flag_shadow_;

  RegionTable regions_;
  mutable std::mutex mutex_;  // guards all below
  uint64_t used_bytes_ = 0;
  uint32_t num_regions_ = 0;  // ever made
  std::map<uint32_t, FlagRange> flag_ranges_;
};

/// Compares what ranks 0, 1, ... were given for the same call.
/// Errors: internal, naming the first rank that differs.
Status check_symmetric(std::span<const uint64_t> address_of_rank);

}  // namespace mkernel
