// Turns completions that come in any order into the position up to which the command queue is
// complete. Pure. Threads: one.
//
// Invariants:
//  1. Commands begin in the order of their positions 0, 1, ...; each stands for one or two writes.
//  2. completed() passes a position only when every write of it and of all before it is complete:
//     queue space, and with it the source of a write, never comes back early.
//  3. A completion of a write that is not outstanding is refused: it would stand for another one.
#pragma once
#include <cstdint>
#include <vector>

namespace mkernel {

class Completion {
 public:
  /// For at most `capacity` commands that are begun and not complete; a power of two.
  explicit Completion(uint64_t capacity) : outstanding_(capacity) {}

  /// Names of the writes of a command: first_write_id(position), and that plus 1.
  static constexpr uint64_t first_write_id(uint64_t position) { return 2 * position; }
  static constexpr uint64_t position_of(uint64_t write_id) { return write_id / 2; }

  /// The command at the next position begins; it takes 1 or 2 writes.
  void begin(uint32_t num_writes) {
    outstanding(begun_++) = static_cast<uint8_t>((1u << num_writes) - 1);
  }

  /// A write is complete; false if none of this name is outstanding.
  bool complete(uint64_t write_id) {
    const uint64_t position = position_of(write_id);
    const unsigned bit = 1u << (write_id % 2);
    if (position - completed_ >= begun_ - completed_) return false;
    if ((outstanding(position) & bit) == 0) return false;
    outstanding(position) = static_cast<uint8_t>(outstanding(position) & ~bit);
    while (completed_ != begun_ && outstanding(completed_) == 0) ++completed_;
    return true;
  }

  /// All commands before this position are complete.
  uint64_t completed() const { return completed_; }
  /// All commands that began are complete.
  bool idle() const { return completed_ == begun_; }

 private:
  uint8_t& outstanding(uint64_t position) {
    return outstanding_[position & (outstanding_.size() - 1)];
  }

  std::vector<uint8_t> outstanding_;  // by position: a bit per write
  uint64_t begun_ = 0;
  uint64_t completed_ = 0;
};

}  // namespace mkernel
