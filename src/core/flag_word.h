// Where a rank's flags lie, for those who raise them (peers, networks, proxies) and those who wait.
#pragma once
#include <cstdint>

#include "core/target.h"

namespace mkernel {

/// Flags of a rank are numbered with 16 bits; an immediate of 32 bits then leaves 16 for the epoch.
inline constexpr uint32_t kFlagBits = 16;
inline constexpr uint32_t kMaxFlags = 1u << kFlagBits;

/// Flags are a line of L2 (32 words) apart. Many blocks poll, and a line lies in one slice of L2,
/// which copies to and from everywhere go through as well.
inline constexpr uint32_t kFlagStride = 32;
inline constexpr uint64_t kFlagRegionBytes = uint64_t{kMaxFlags} * kFlagStride * sizeof(uint32_t);

/// The word of flag number `flag` in a rank's flag region.
MK_HD constexpr uint32_t* flag_word(uint32_t* region, uint32_t flag) {
  return region + uint64_t{flag} * kFlagStride;
}

}  // namespace mkernel
