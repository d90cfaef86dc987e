#include "network/staged_slots.h"

#include <cstring>

#include "core/maths.h"

namespace mkernel {
namespace {

/// Pinned memory of a device as if it were all that there is.
class PinnedMemory final : public DeviceMemory {
 public:
  explicit PinnedMemory(DeviceMemory& memory) : memory_(memory) {}
  Result<void*> allocate(uint64_t bytes) override { return memory_.allocate_pinned(bytes); }
  Result<void*> allocate_pinned(uint64_t bytes) override { return memory_.allocate_pinned(bytes); }
  void release(void* p) override { memory_.release(p); }
  bool host_accessible() const override { return true; }
  Result<void*> allocate_shared(uint64_t) override { return not_shared(); }
  Result<int> export_shared(void*) override { return not_shared(); }
  Result<void*> import_shared(int, uint64_t) override { return not_shared(); }
  Status upload(void* dst, const void* src, uint64_t bytes) override {
    if (bytes != 0) std::memcpy(dst, src, bytes);
    return Status::ok();
  }
  Status download(void* dst, const void* src, uint64_t bytes) override {
    return upload(dst, src, bytes);
  }
  Result<uint64_t> peek(uint64_t* word) override { return memory_.peek(word); }
  Result<std::unique_ptr<CopyChannel>> create_channel() override {
    return memory_.create_channel();
  }

 private:
  static Status not_shared() { return {Code::kInternal, "bounce buffers are not shared"}; }

  DeviceMemory& memory_;
};

}  // namespace

uint64_t StagedSlots::slot_bytes() const {
  return kHeaderBytes + round_up(config_.piece_bytes, kHeaderBytes);
}

uint64_t StagedSlots::address(bool is_incoming, uint32_t peer, uint32_t slot) const {
  const uint64_t index =
      (uint64_t{is_incoming ? config_.num_ranks : 0} + peer) * config_.slots + slot;
  return region_->address + index * slot_bytes();
}

Result<std::unique_ptr<StagedSlots>> StagedSlots::create(DeviceMemory& memory,
                                                         const StagedConfig& config) {
  std::unique_ptr<StagedSlots> slots(new StagedSlots(config));
  slots->pinned_ = std::make_unique<PinnedMemory>(memory);
  Result<std::unique_ptr<SymmetricHeap>> heap =
      SymmetricHeap::create(*slots->pinned_, config.rank, kMaxRegionBytes);
  if (!heap) return heap.status();
  slots->heap_ = std::move(*heap);
  Result<HeapRegionPtr> region =
      slots->heap_->allocate(uint64_t{2} * config.num_ranks * config.slots * slots->slot_bytes());
  if (!region) return region.status();
  slots->region_ = std::move(*region);
  return slots;
}

}  // namespace mkernel
