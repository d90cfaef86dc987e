// Groups ready commands by destination, for one post each. Pure. Threads: one.
//
// Commands to one destination keep their order; destinations take turns, so a busy one cannot
// starve the others. Nothing is held back to fill a batch. Nothing is allocated once it is made:
// what waits, waits in lists through one pool of nodes.
#pragma once
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "command/command.h"

namespace mkernel {

struct PendingCommand {
  uint64_t position;  // in the command queue
  Command command;
};

class Batcher {
 public:
  /// For at most `capacity` commands that wait at once.
  Batcher(uint32_t num_destinations, uint32_t capacity)
      : nodes_(capacity), destinations_(num_destinations) {
    for (uint32_t i = 0; i < capacity; ++i) nodes_[i].next = i + 1 < capacity ? i + 1 : kNone;
    free_ = capacity > 0 ? 0 : kNone;
  }

  /// command.dst_rank is below num_destinations, and fewer than `capacity` commands wait.
  void add(const PendingCommand& pending) {
    const uint32_t node = free_;
    free_ = nodes_[node].next;
    nodes_[node] = {pending, kNone};
    Destination& d = destinations_[pending.command.dst_rank];
    if (d.first == kNone) {
      d.first = node;
      append_turn(pending.command.dst_rank);
    } else {
      nodes_[d.last].next = node;
    }
    d.last = node;
  }

  bool empty() const { return first_turn_ == kNone; }

  /// Takes commands of the destination whose turn it is, as many as there are and `out` holds (at
  /// least 1). Returns how many. Only while not empty().
  size_t take(std::span<PendingCommand> out) {
    const uint32_t destination = first_turn_;
    Destination& d = destinations_[destination];
    first_turn_ = d.next_turn;
    size_t count = 0;
    while (count < out.size() && d.first != kNone) {
      Node& node = nodes_[d.first];
      out[count++] = node.pending;
      const uint32_t next = node.next;
      node.next = free_;
      free_ = d.first;
      d.first = next;
    }
    if (d.first != kNone) append_turn(destination);
    return count;
  }

 private:
  static constexpr uint32_t kNone = ~uint32_t{0};
  struct Node {
    PendingCommand pending{};
    uint32_t next = kNone;  // of the same destination, or free
  };
  struct Destination {
    uint32_t first = kNone, last = kNone;  // nodes that wait
    uint32_t next_turn = kNone;            // the destination whose turn comes after this one's
  };

  void append_turn(uint32_t destination) {
    destinations_[destination].next_turn = kNone;
    if (first_turn_ == kNone)
      first_turn_ = destination;
    else
      destinations_[last_turn_].next_turn = destination;
    last_turn_ = destination;
  }

  std::vector<Node> nodes_;
  std::vector<Destination> destinations_;
  uint32_t free_;
  uint32_t first_turn_ = kNone, last_turn_ = kNone;  // destinations with waiting commands
};

}  // namespace mkernel
