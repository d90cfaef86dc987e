// Groups ready commands by destination, for one post each. Pure. Threads: one.
//
// Commands to one destination keep their order; destinations take turns, so a busy one cannot
// starve the others. Nothing is held back to fill a batch.
#pragma once
#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <vector>

#include "command/command.h"

namespace mkernel {

struct PendingCommand {
  uint64_t position;  // in the command queue
  Command command;
};

class Batcher {
 public:
  explicit Batcher(uint32_t num_destinations) : waiting_(num_destinations) {}

  /// command.dst_rank is below num_destinations.
  void add(const PendingCommand& pending) {
    std::deque<PendingCommand>& waiting = waiting_[pending.command.dst_rank];
    if (waiting.empty()) turns_.push_back(pending.command.dst_rank);
    waiting.push_back(pending);
  }

  bool empty() const { return turns_.empty(); }

  /// Takes at most `limit` commands (at least 1) of the destination whose turn it is.
  /// Only while not empty().
  std::vector<PendingCommand> take(size_t limit) {
    const uint32_t destination = turns_.front();
    turns_.pop_front();
    std::deque<PendingCommand>& waiting = waiting_[destination];
    const auto count = static_cast<std::ptrdiff_t>(std::min(limit, waiting.size()));
    std::vector<PendingCommand> batch(waiting.begin(), waiting.begin() + count);
    waiting.erase(waiting.begin(), waiting.begin() + count);
    if (!waiting.empty()) turns_.push_back(destination);
    return batch;
  }

 private:
  std::vector<std::deque<PendingCommand>> waiting_;  // by destination
  std::deque<uint32_t> turns_;                       // destinations with waiting commands
};

}  // namespace mkernel
