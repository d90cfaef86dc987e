#include "network/verbs/regions.h"

#include <algorithm>

#include "memory/heap_address.h"

namespace mkernel::verbs {
namespace {

std::optional<Location> inside(const Location& begin, uint64_t region_bytes, uint64_t address,
                               uint64_t bytes) {
  const uint64_t offset = offset_of(address);
  if (offset > region_bytes || bytes > region_bytes - offset) return std::nullopt;
  return Location{begin.address + offset, begin.keys};
}

}  // namespace

void Regions::add_own(const HeapRegion& region, Registrations registrations) {
  Own own{std::move(registrations), region.bytes, {reinterpret_cast<uint64_t>(region.data), {}}};
  std::ranges::transform(own.registrations, own.begin.keys.begin(),
                         [](const auto& registration) { return registration->lkey(); });
  const std::lock_guard lock(mutex_);
  own_.insert_or_assign(region_of(region.address), std::move(own));
}

std::optional<RegionKey> Regions::key_of_own(uint64_t address) const {
  const std::lock_guard lock(mutex_);
  const auto it = own_.find(region_of(address));
  if (it == own_.end()) return std::nullopt;
  RegionKey key{.address = it->second.begin.address};
  for (const auto& registration : it->second.registrations)
    key.rkeys.push_back(registration->rkey());
  return key;
}

void Regions::add_peer(uint32_t peer, uint64_t address, uint64_t bytes, const RegionKey& key) {
  Peers peers{bytes, {key.address, {}}};
  std::ranges::copy(key.rkeys, peers.begin.keys.begin());
  const std::lock_guard lock(mutex_);
  of_peer_.insert_or_assign({region_of(address), peer}, peers);
}

void Regions::forget(uint64_t address) {
  const uint32_t number = region_of(address);
  const std::lock_guard lock(mutex_);
  own_.erase(number);
  of_peer_.erase(of_peer_.lower_bound({number, 0}), of_peer_.upper_bound({number, UINT32_MAX}));
}

void Regions::clear() {
  const std::lock_guard lock(mutex_);
  own_.clear();
  of_peer_.clear();
}

std::optional<Location> Regions::own(uint64_t address, uint64_t bytes) const {
  const std::lock_guard lock(mutex_);
  const auto it = own_.find(region_of(address));
  if (it == own_.end()) return std::nullopt;
  return inside(it->second.begin, it->second.bytes, address, bytes);
}

std::optional<Location> Regions::of_peer(uint32_t peer, uint64_t address, uint64_t bytes) const {
  const std::lock_guard lock(mutex_);
  const auto it = of_peer_.find({region_of(address), peer});
  if (it == of_peer_.end()) return std::nullopt;
  return inside(it->second.begin, it->second.bytes, address, bytes);
}

}  // namespace mkernel::verbs
