// The queue of commands from a rank's kernels to its proxy: many producers (blocks), one consumer
// (the proxy's thread), in pinned host memory.
//
// Invariants, and why they hold:
//  1. A slot is written by the producer that drew its position from `head`, by nobody else.
//  2. The consumer reads a slot only after the acquire of a commit word with this lap's tag; the
//     commit is the producer's last store, a release. So a command is never seen in part.
//  3. A producer writes a slot only after `tail` has passed the command that was there a lap ago,
//     and `tail` moves when a command is *complete*. So back-pressure also protects the sources
//     of writes that the network still reads.
#pragma once
#include <cstdint>

#include "command/command.h"
#include "core/sync.h"
#include "core/watchdog.h"

namespace mkernel {

class CommandQueue {
 public:
  CommandQueue() = default;
  /// `slots`: 2^log2_capacity zeroed slots, `tail`: both pinned host memory. `head`: memory of the
  /// producers. All start at zero.
  CommandQueue(CommandSlot* slots, uint64_t* head, uint64_t* tail, uint32_t log2_capacity)
      : slots_(slots), head_(head), tail_(tail), log2_capacity_(log2_capacity) {}

  /// Producer: appends a command; false once the watchdog has tripped.
  MK_HD bool push(const Command& c, const Watchdog& dog) const {
    const uint64_t pos = add_relaxed<Scope::kGpu>(head_, uint64_t{1});
    const auto free_at = static_cast<uint32_t>(pos + 1 - capacity());
    const WaitSite site{Place::kQueueSpace, c.dst_rank, c.flag};
    if (!dog.wait(site, free_at, [&] { return static_cast<uint32_t>(completed()); }).ok)
      return false;
    CommandSlot& slot = slots_[pos & (capacity() - 1)];
    store_relaxed<Scope::kSys>(&slot.words[1], c.local_address);
    store_relaxed<Scope::kSys>(&slot.words[2], c.remote_address);
    store_relaxed<Scope::kSys>(&slot.words[3], (uint64_t{c.epoch} << 32) | c.bytes);
    store_release<Scope::kSys>(&slot.words[0], commit_word(c, lap_tag(pos >> log2_capacity_)));
    return true;
  }

  /// Consumer: reads the command at position `pos`; false while it is not there.
  MK_HD bool read(uint64_t pos, Command* out) const {
    CommandSlot& slot = slots_[pos & (capacity() - 1)];
    const uint64_t commit = load_acquire<Scope::kSys>(&slot.words[0]);
    if (static_cast<uint16_t>(commit) != lap_tag(pos >> log2_capacity_)) return false;
    const uint64_t w3 = load_relaxed<Scope::kSys>(&slot.words[3]);
    *out = {load_relaxed<Scope::kSys>(&slot.words[1]),
            load_relaxed<Scope::kSys>(&slot.words[2]),
            static_cast<uint32_t>(w3),
            static_cast<uint32_t>(w3 >> 32),
            static_cast<uint32_t>(commit >> 32),
            static_cast<uint16_t>(commit >> 16)};
    return true;
  }

  /// Consumer: all commands before position `pos` are complete; their slots are free.
  MK_HD void complete(uint64_t pos) const { store_release<Scope::kSys>(tail_, pos); }

  /// Any thread: commands completed so far.
  MK_HD uint64_t completed() const { return load_acquire<Scope::kSys>(tail_); }

  MK_HD constexpr uint64_t capacity() const { return uint64_t{1} << log2_capacity_; }

 private:
  CommandSlot* slots_ = nullptr;
  uint64_t* head_ = nullptr;  // commands claimed; grows
  uint64_t* tail_ = nullptr;  // commands complete; grows
  uint32_t log2_capacity_ = 0;
};

}  // namespace mkernel
