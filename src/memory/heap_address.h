// How a byte of a rank's symmetric heap is named, on every rank and in every command.
#pragma once
#include <cstdint>

#include "core/target.h"

namespace mkernel {

/// A heap address is a region number above an offset of 44 bits (16 TiB). Adding to an address
/// moves inside the region. Region 0 does not exist, so a zeroed address is never valid.
inline constexpr uint32_t kOffsetBits = 44;
inline constexpr uint64_t kMaxRegionBytes = uint64_t{1} << kOffsetBits;
inline constexpr uint32_t kMaxRegions = 1u << (64 - kOffsetBits);

MK_HD constexpr uint64_t heap_address(uint32_t region, uint64_t offset) {
  return (uint64_t{region} << kOffsetBits) + offset;
}
MK_HD constexpr uint32_t region_of(uint64_t address) {
  return static_cast<uint32_t>(address >> kOffsetBits);
}
MK_HD constexpr uint64_t offset_of(uint64_t address) { return address & (kMaxRegionBytes - 1); }

}  // namespace mkernel
