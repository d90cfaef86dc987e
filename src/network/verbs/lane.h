// One queue pair and the requests in it. Holds what does not fit yet, so that never more is posted
// than the queue pair and the rail's completion queue have room for.
//
// Which requests ask for a completion: on a queue pair that keeps order, not those with a flag
// right behind them in the same chain, since the flag's completion stands for both; else all.
#pragma once
#include <cstdint>
#include <deque>
#include <memory>
#include <optional>
#include <vector>

#include <mkernel/status.h>

#include "network/verbs/api.h"
#include "network/verbs/rail.h"

namespace mkernel::verbs {

/// A request that waits to be posted, or was posted and is not complete.
struct Request {
  SendRequest wr;
  uint32_t flight = 0;
  uint32_t peer = 0;
  uint32_t route = 0;  // of the peer
  std::optional<uint32_t> flag =
      {};  // its four bytes are this value, and not those at wr.local_address
};

struct LaneConfig {
  uint32_t rail_idx = 0;
  uint32_t index = 0;  // among all lanes: the upper half of request ids
  uint32_t first_word = 0;
  uint32_t depth = 0;
  Service service = Service::kConnected;
};

class Lane {
 public:
  Lane(Rail& rail, std::unique_ptr<QueuePair> pair, const LaneConfig& config);

  QueuePair& pair() { return *pair_; }
  uint32_t rail_idx() const { return config_.rail_idx; }
  uint32_t num_posted() const { return config_.depth - static_cast<uint32_t>(free_.size()); }

  bool has_pending() const { return !pending_.empty(); }
  void add(const Request& request) { pending_.push_back(request); }
  /// Posts what there is room for.
  Status flush();
  /// Takes the requests to a peer that were not posted.
  std::vector<Request> take_pending(uint32_t peer);
  /// Appends the requests, oldest first, that a completion of request `id` ends: all but the last
  /// one have succeeded. None if that is not posted.
  void complete(uint64_t id, std::vector<Request>& ended);

  static uint32_t index_of(uint64_t id) { return static_cast<uint32_t>(id >> 32); }

 private:
  SendRequest prepare(uint32_t slot);

  Rail& rail_;
  const LaneConfig config_;
  const bool in_order_;
  std::deque<Request> pending_;
  std::vector<std::optional<Request>> slots_;
  std::vector<uint32_t> free_;
  std::deque<uint32_t> order_;  // slots in order of posting, if completions come in it
  std::vector<SendRequest> chain_;
  std::unique_ptr<QueuePair> pair_;
};

}  // namespace mkernel::verbs
