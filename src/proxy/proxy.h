// The thread between a rank's command queue and its network.
//
// Each pass reads the commands that are ready, posts them in batches, polls, hands queue space back
// in order of completion, and raises flags for immediates that arrived. It knows nothing of tiles
// or operators.
//
// Invariants:
//  1. Queue space comes back at completion, in order, never at post. So the proxy holds at most
//     one queue's worth of commands, and a source is not overwritten while the network reads it.
//  2. At most traits().max_in_flight writes are in flight; what does not fit waits.
//  3. A flag raised for an immediate only grows; a stale immediate raises nothing.
//  4. Whatever fails (a completion, a post, a command without route, no completion for limit_ns)
//     becomes a fault with Place::kTransport, ends the thread and is never counted as success.
#pragma once
#include <array>
#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <thread>

#include <mkernel/status.h>

#include "command/queue.h"
#include "core/watchdog.h"
#include "memory/device_memory.h"
#include "memory/symmetric_heap.h"
#include "network/arrival.h"
#include "network/transport.h"
#include "proxy/batcher.h"
#include "proxy/completion.h"
#include "proxy/idle_policy.h"
#include "proxy/statistics.h"

namespace mkernel {

struct ProxyConfig {
  uint32_t rank;
  uint32_t num_ranks;
  CommandQueue queue;                  // this thread is its consumer
  std::unique_ptr<Endpoint> endpoint;  // of this rank
  SymmetricHeap* heap;                 // of this rank; lives until the proxy is gone
  uint32_t* abort;                     // see Watchdog::abort
  uint64_t limit_ns;                   // see WaitLimits::progress_ns
};

class Proxy {
 public:
  /// Starts the thread.
  /// Errors: what check_arrival() says of the endpoint; internal if there is no thread to be had.
  static Result<std::unique_ptr<Proxy>> start(ProxyConfig config);
  ~Proxy();
  Proxy(const Proxy&) = delete;
  Proxy& operator=(const Proxy&) = delete;

  /// Completes what is in the queue, for limit_ns at most, closes the endpoint and ends the thread.
  /// Returns error(). Heaps may go when the proxies of all ranks have stopped.
  Status stop();

  /// Says that commands are about to come, so that the first is not met by a sleeping thread. Those
  /// that come unannounced are seen too, within IdlePolicy::kSleep. Threads: any.
  void expect_commands();

  /// The first thing that went wrong: timeout, peer_failed (also when another rank tripped), or
  /// what the transport said.
  Status error() const;
  /// The same as a fault record; none if nothing went wrong here.
  std::optional<FaultRecord> fault() const;
  ProxyStatistics statistics() const;
  /// Processor time that the thread has taken; none once it has stopped. Not beside stop().
  std::optional<uint64_t> cpu_ns();

 private:
  Proxy(ProxyConfig config, std::unique_ptr<CopyChannel> channel);
  void run();
  // One pass and its steps; false once something has failed.
  bool pass();
  bool read_commands();
  bool post_batches();
  bool post_batch(size_t limit);
  bool poll_network();
  bool handle(const Event& event);
  bool raise_flag(uint32_t value);
  bool check_progress();
  bool is_drained();
  /// The command at a position; its slot keeps it until it is complete.
  std::optional<Command> command_at(uint64_t position) const;
  /// Records the error and trips the watchdog; `c` is the command it is about. Returns false.
  bool fail(const std::optional<Command>& c, const Status& status);
  void set_error(const Status& status);
  void rest(IdlePolicy& idle);

  const ProxyConfig config_;
  const LinkTraits traits_;
  const ArrivalMethod method_;
  const std::unique_ptr<CopyChannel> channel_;  // for flags; the endpoint's copies have their own

  // Of the thread alone.
  std::array<Event, 64> events_;  // of one poll; bounds the time until commands are looked at
  Batcher batcher_;
  Completion completion_;
  uint64_t next_position_ = 0;
  uint32_t in_flight_ = 0;  // writes
  bool waits_for_room_ = false;
  bool worked_ = false;       // in this pass
  uint64_t progress_ns_ = 0;  // when the network last completed something or had nothing to do

  // Shared with other threads.
  mutable ProxyStatistics statistics_;
  uint32_t stop_ = 0;  // 0 -> 1; writer: stop()
  std::atomic<bool> expected_ = false;
  std::mutex sleep_mutex_;  // for what the two below say to each other
  std::condition_variable awake_;
  uint32_t fault_claim_ = 0;
  mutable FaultRecord fault_{};
  const Watchdog dog_;
  mutable std::mutex error_mutex_;
  Status error_;

  std::thread thread_;
};

}  // namespace mkernel
