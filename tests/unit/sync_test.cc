#include "core/sync.h"

#include <gtest/gtest.h>

#include <set>

#include "protocol/slot_flags.h"

namespace mkernel {
namespace {

TEST(Reached, IsRightAcrossTheWrap) {
  EXPECT_TRUE(reached(5, 5));
  EXPECT_TRUE(reached(6, 5));
  EXPECT_FALSE(reached(4, 5));
  EXPECT_TRUE(reached(0, 0xffffffffu));
  EXPECT_TRUE(reached(3, 0xfffffff0u));
  EXPECT_FALSE(reached(0xfffffff0u, 3));
}

TEST(SlotFlags, AreDistinctAndWithinTheirSize) {
  const SlotFlags flags{100, 3, 2, 4};
  std::set<uint32_t> seen;
  for (uint32_t slot = 0; slot < flags.slots; ++slot)
    for (uint32_t slice = 0; slice < 3; ++slice)
      for (uint32_t chunk = 0; chunk < 4; ++chunk) seen.insert(flags.arrived(slot, slice, chunk));
  for (uint32_t peer = 0; peer < 3; ++peer) seen.insert(flags.credit(peer));
  EXPECT_EQ(seen.size(), flags.size());
  EXPECT_EQ(*seen.begin(), 100u);
  EXPECT_EQ(*seen.rbegin(), 100u + flags.size() - 1);
}

TEST(SlotFlags, SlotsAlternateAcrossTheWrap) {
  const SlotFlags flags;
  EXPECT_NE(flags.slot_of(0xffffffffu), flags.slot_of(0));
  EXPECT_EQ(flags.slot_of(0xffffffffu), flags.slot_of(1));
}

}  // namespace
}  // namespace mkernel
