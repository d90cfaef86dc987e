// Which blocks of a launch communicate: a fixed number of those that start first.
#pragma once
#include <cstdint>

#include "core/target.h"

namespace mkernel {

/// Blocks draw a ticket as they start. The first ones communicate, then join the others in
/// computing; so with any number of blocks resident, even one, communication is under way before
/// anybody waits for it.
struct FixedSplit {
  uint32_t comm_blocks = 0;

  MK_HD constexpr bool communicates(uint32_t ticket) const { return ticket < comm_blocks; }
};

}  // namespace mkernel
