#include "memory/symmetric_heap.h"

#include <algorithm>
#include <string>
#include <vector>

#include "core/sync.h"

namespace mkernel {

void GiveBack::operator()(const HeapRegion* region) const { heap->release(region); }
void GiveBack::operator()(const FlagRange* range) const { heap->release(range); }

const HeapRegion* RegionTable::add(const HeapRegion& region) {
  const std::lock_guard lock(mutex_);
  return &regions_.emplace(region_of(region.address), region).first->second;
}

void RegionTable::remove(uint64_t address) {
  const std::lock_guard lock(mutex_);
  regions_.erase(region_of(address));
}

char* RegionTable::resolve(uint64_t address, uint64_t bytes) const {
  const std::lock_guard lock(mutex_);
  const auto it = regions_.find(region_of(address));
  if (it == regions_.end()) return nullptr;
  const HeapRegion& region = it->second;
  const uint64_t offset = offset_of(address);
  if (offset > region.bytes || bytes > region.bytes - offset) return nullptr;
  return region.data + offset;
}

SymmetricHeap::SymmetricHeap(DeviceMemory& memory, uint32_t rank, uint64_t bytes_limit,
                             HeapReach reach)
    : memory_(memory),
      rank_(rank),
      bytes_limit_(bytes_limit),
      reach_(reach),
      flag_shadow_(std::make_unique<uint32_t[]>(kMaxFlags)) {}

Result<std::unique_ptr<SymmetricHeap>> SymmetricHeap::create(DeviceMemory& memory, uint32_t rank,
                                                             uint64_t bytes_limit,
                                                             HeapReach reach) {
  if (bytes_limit > kMaxRegionBytes) {
    return Status(Code::kInvalidArgument, "heap_bytes_limit = " + std::to_string(bytes_limit) +
                                              ": at most " + std::to_string(kMaxRegionBytes));
  }
  std::unique_ptr<SymmetricHeap> heap(new SymmetricHeap(memory, rank, bytes_limit, reach));
  Result<void*> flags = heap->allocate_memory(kFlagRegionBytes);
  if (!flags) return flags.status();
  heap->flags_ = static_cast<uint32_t*>(*flags);
  return heap;
}

SymmetricHeap::~SymmetricHeap() {
  if (flags_ != nullptr) memory_.release(flags_);
}

Result<void*> SymmetricHeap::allocate_memory(uint64_t bytes) const {
  return reach_ == HeapReach::kHost ? memory_.allocate_shared(bytes) : memory_.allocate(bytes);
}

Result<HeapRegionPtr> SymmetricHeap::allocate(uint64_t bytes) {
  const std::lock_guard lock(mutex_);
  const std::string who = "rank " + std::to_string(rank_) + ": ";
  if (bytes > bytes_limit_ - used_bytes_) {
    return Status(Code::kInvalidArgument,
                  who + "work space of " + std::to_string(bytes) + " bytes beside " +
                      std::to_string(used_bytes_) +
                      " in use exceeds heap_bytes_limit = " + std::to_string(bytes_limit_));
  }
  if (num_regions_ + 1 == kMaxRegions) {
    return Status(Code::kUnavailable,
                  who + "all " + std::to_string(kMaxRegions - 1) + " region numbers are used up");
  }
  // A plan without work space still gets a region, so that its address can be compared.
  Result<void*> data = allocate_memory(std::max<uint64_t>(bytes, 1));
  if (!data) return data.status();
  const uint32_t number = ++num_regions_;
  used_bytes_ += bytes;
  return HeapRegionPtr(regions_.add({heap_address(number, 0), bytes, static_cast<char*>(*data)}),
                       GiveBack{this});
}

void SymmetricHeap::release(const HeapRegion* region) {
  char* const data = region->data;
  {
    const std::lock_guard lock(mutex_);
    used_bytes_ -= region->bytes;
  }
  regions_.remove(region->address);
  memory_.release(data);  // may wait for the device: not under the lock that proxies take
}

uint32_t SymmetricHeap::num_regions() const {
  const std::lock_guard lock(mutex_);
  return num_regions_;
}

void SymmetricHeap::skip_regions_to(uint32_t num_regions) {
  const std::lock_guard lock(mutex_);
  num_regions_ = std::max(num_regions_, num_regions);
}

Result<FlagRangePtr> SymmetricHeap::allocate_flags(uint32_t count, uint32_t initial) {
  const std::lock_guard lock(mutex_);
  uint32_t first = 0;  // the lowest gap that fits: the same on all ranks
  for (const auto& [start, range] : flag_ranges_) {
    if (start - first >= count) break;
    first = start + range.count;
  }
  if (count == 0 || count > kMaxFlags - first) {
    return Status(Code::kInvalidArgument, "rank " + std::to_string(rank_) + ": no " +
                                              std::to_string(count) + " flags in a row left of " +
                                              std::to_string(kMaxFlags));
  }
  const std::vector<uint32_t> values(size_t{count} * kFlagStride, initial);
  MK_RETURN_IF_ERROR(memory_.upload(flag(first), values.data(), values.size() * sizeof(uint32_t)));
  for (uint32_t i = 0; i < count; ++i) {
    store_relaxed<Scope::kSys>(&flag_shadow_[first + i], initial);
  }
  const auto [it, is_new] = flag_ranges_.emplace(first, FlagRange{first, count});
  return FlagRangePtr(&it->second, GiveBack{this});
}

void SymmetricHeap::release(const FlagRange* range) {
  const std::lock_guard lock(mutex_);
  flag_ranges_.erase(range->first);
}

Status check_symmetric(std::span<const uint64_t> address_of_rank) {
  for (size_t rank = 1; rank < address_of_rank.size(); ++rank) {
    if (address_of_rank[rank] == address_of_rank[0]) continue;
    return Status(Code::kInternal, "rank " + std::to_string(rank) + " was given address " +
                                       std::to_string(address_of_rank[rank]) + ", rank 0 " +
                                       std::to_string(address_of_rank[0]) +
                                       ": the ranks did not make the same calls");
  }
  return Status::ok();
}

}  // namespace mkernel
