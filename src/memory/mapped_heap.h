// The heap of a rank in another process of this host, as far as it is mapped here.
#pragma once
#include <cstdint>
#include <memory>

#include <mkernel/status.h>

#include "memory/symmetric_heap.h"

namespace mkernel {

/// Threads: any. The DeviceMemory, of the rank that looks at it, must outlive it.
class MappedHeap final : public HeapView {
 public:
  /// Maps the peer's flag region, which `descriptor` stands for and which stays the caller's.
  static Result<std::unique_ptr<MappedHeap>> create(DeviceMemory& memory, int descriptor);
  ~MappedHeap() override;
  MappedHeap(const MappedHeap&) = delete;
  MappedHeap& operator=(const MappedHeap&) = delete;

  /// Maps a region that the peer has at this heap address.
  Result<char*> map(uint64_t address, uint64_t bytes, int descriptor);
  /// Unmaps it. Nothing may read or write it any more.
  void unmap(uint64_t address);

  char* resolve(uint64_t address, uint64_t bytes) const override {
    return regions_.resolve(address, bytes);
  }
  uint32_t* flag_region() const override { return flags_; }

 private:
  MappedHeap(DeviceMemory& memory, uint32_t* flags) : memory_(memory), flags_(flags) {}

  DeviceMemory& memory_;
  uint32_t* const flags_;
  RegionTable regions_;
};

}  // namespace mkernel
