// Transfers on their way to peers: nothing is lost or sent twice when the provider says "not now",
// and order within a peer is kept until the provider has taken them.
//
// Threads: one.
// Invariants:
//  1. A transfer that was given to send() comes out of poll() once, as sent or as failed.
//  2. After the first failure towards a peer nothing more is given to the provider for it: what is
//     not with the provider yet fails, as on a broken connection.
#pragma once
#include <cstdint>
#include <deque>
#include <string>
#include <vector>

#include <mkernel/status.h>

#include "core/sync.h"
#include "network/libfabric/port.h"

namespace mkernel::libfabric {

struct WireEvent {
  enum class Kind : uint8_t {
    kSent,    // delivered
    kFailed,  // the transfer came to nothing, or to something unknown
    kData,    // a peer's write carried `data`; its bytes are in place
  };
  Kind kind = Kind::kSent;
  Transfer* transfer = nullptr;  // of kSent and kFailed
  uint64_t data = 0;
};

class Wire {
 public:
  /// What the provider does not take for limit_ns fails.
  Wire(Port& port, uint32_t num_ranks, uint64_t limit_ns);

  /// A transfer to fill in; it goes back with release().
  Transfer* acquire();
  void release(Transfer* transfer) { free_.push_back(transfer); }
  void send(Transfer* transfer);
  /// Offers again what was not taken, and appends at most about `limit` events.
  /// Errors: peer_failed, with what the provider says, for what is no transfer's error.
  Status poll(size_t limit, std::vector<WireEvent>& events);

  /// What is not with the provider yet fails, as after a failed transfer.
  void break_lane(uint32_t peer, const std::string& text);

  bool idle() const { return num_sent_ == 0 && lanes_waiting_.empty() && failed_.empty(); }
  /// How many transfers the provider did not take at once. Threads: any.
  uint64_t num_retries() const { return load_relaxed<Scope::kSys>(&num_retries_); }
  /// What the provider said of the last failure; empty if there was none.
  const std::string& last_error() const { return last_error_; }

 private:
  struct Lane {
    std::deque<Transfer*> waiting;
    uint64_t progress_ns = 0;  // when the provider last took or delivered one, if any waits
    bool broken = false;
  };
  bool offer(Transfer* transfer);  // false: not now
  void offer_waiting(Lane& lane);
  void fail(Transfer* transfer, const std::string& text);
  Status read(size_t limit, std::vector<WireEvent>& events);
  void complete(const fi_cq_data_entry& entry, std::vector<WireEvent>& events);
  Status read_failure();

  Port& port_;
  const uint64_t limit_ns_;
  std::vector<Lane> lanes_;              // by peer
  std::vector<uint32_t> lanes_waiting_;  // peers whose lane has waiting transfers
  std::vector<Transfer*> failed_;        // to be reported
  mutable uint64_t num_retries_ = 0;     // writer: the one thread; readers: any (sys, relaxed)
  uint64_t num_sent_ = 0;                // with the provider
  std::string last_error_;
  std::deque<Transfer> transfers_;
  std::vector<Transfer*> free_;
};

}  // namespace mkernel::libfabric
