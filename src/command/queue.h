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
//  4. Of the producers that wait for space, only the one that the next completion frees looks at
//     `tail`, which for a GPU lies across PCIe: it is one at a time, since positions differ, and
//     there is always one, since all positions are drawn. It tells the others what it saw.
#pragma once
#include <cstdint>

#include "command/command.h"
#include "core/sync.h"
#include "core/watchdog.h"

namespace mkernel {

/// What producers share, in their own memory.
struct ProducerWords {
  uint64_t head = 0;       // commands claimed; grows
  uint64_t seen_tail = 0;  // of the consumer's, as far as a producer has looked; grows
};

class CommandQueue {
 public:
  CommandQueue() = default;
  /// `slots`: 2^log2_capacity zeroed slots, `tail`: both pinned host memory. All start at zero.
  CommandQueue(CommandSlot* slots, ProducerWords* producers, uint64_t* tail, uint32_t log2_capacity)
      : slots_(slots), producers_(producers), tail_(tail), log2_capacity_(log2_capacity) {}

  /// Producer: appends a command; false once the watchdog has tripped.
  MK_HD bool push(const Command& c, const Watchdog& dog) const {
    const uint64_t pos = add_relaxed<Scope::kGpu>(&producers_->head, uint64_t{1});
    const uint64_t free_at = pos + 1 - capacity();
    const WaitSite site{Place::kQueueSpace, c.dst_rank, c.flag};
    const auto seen = [&] { return static_cast<uint32_t>(look_at_tail(free_at)); };
    if (!dog.wait(site, static_cast<uint32_t>(free_at), seen).ok) return false;
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
  /// The tail as the producer knows that needs it to reach `free_at`.
  MK_HD uint64_t look_at_tail(uint64_t free_at) const {
    const uint64_t seen = load_acquire<Scope::kGpu>(&producers_->seen_tail);
    if (free_at != seen + 1) return seen;
    const uint64_t tail = completed();
    if (tail != seen) store_release<Scope::kGpu>(&producers_->seen_tail, tail);
    return tail;
  }

  CommandSlot* slots_ = nullptr;
  ProducerWords* producers_ = nullptr;
  uint64_t* tail_ = nullptr;  // commands complete; grows
  uint32_t log2_capacity_ = 0;
};

}  // namespace mkernel
