// The flags of a plan whose work space is a ring of slots, one slot per launch, and the rule by
// which slots are reused.
//
// Words (u32, in the flag region of every rank; all only grow, compared with reached()):
//   arrived(slot, slice, chunk)  writer: whoever put that chunk there (a local peer, the rank
//       itself, the network); reader: the rank's blocks. Value: the epoch of the data. A word per
//       slot, because launches e and e + 1 may both be on their way: a shared word at e + 1 would
//       release a wait for e.
//   credit(peer)  writer: the peer, as its launch e ends, or as launch e + 1 starts where the slot
//       is handed to the caller in between; reader: ranks that write to the peer. Value e: the
//       peer reads nothing of launches up to e any more, and what was sent to it in them has
//       arrived, so the sources are free too.
#pragma once
#include <cstdint>

#include "core/target.h"

namespace mkernel {

/// The most slots of work space. A power of two, as every number of slots, so that the wrap of
/// epochs keeps order.
inline constexpr uint32_t kMaxSlots = 2;

/// Flag indices, the same on every rank.
struct SlotFlags {
  uint32_t first = 0;  // first flag of the plan
  uint32_t world = 1;
  uint32_t slots = kMaxSlots;  // two: a rank can be a whole launch ahead before it has to wait
  uint32_t chunks = 0;         // per slice

  MK_HD constexpr uint32_t slot_of(uint32_t epoch) const { return epoch & (slots - 1); }
  /// Credit that a writer of launch `epoch` needs: the slot's earlier user is done with it.
  MK_HD constexpr uint32_t credit_needed(uint32_t epoch) const { return epoch - slots; }

  MK_HD constexpr uint32_t arrived(uint32_t slot, uint32_t slice, uint32_t chunk) const {
    return first + (slot * world + slice) * chunks + chunk;
  }
  MK_HD constexpr uint32_t credit(uint32_t peer) const {
    return first + slots * world * chunks + peer;
  }
  MK_HD constexpr uint64_t size() const { return uint64_t{slots} * world * chunks + world; }
};

}  // namespace mkernel
