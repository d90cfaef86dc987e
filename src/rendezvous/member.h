// One rank's end of the star: its connection to the hub, and the thread that watches it.
#pragma once
#include <condition_variable>
#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include <mkernel/rendezvous.h>
#include <mkernel/status.h>

#include "rendezvous/connection.h"
#include "rendezvous/identity.h"
#include "rendezvous/join.h"
#include "rendezvous/message.h"
#include "rendezvous/process_group.h"
#include "rendezvous/socket.h"

namespace mkernel {

/// Thread safety: the connection belongs to the watching thread alone. What callers want to say and
/// to know goes through the words under `mutex_`.
///  1. The fault is set once, under `mutex_`, and everyone who waits is told by `changed_`.
///  2. A report goes to the hub and comes back as everybody's fault, so that of two reports all
///     ranks take the same. Only if the hub is lost meanwhile, a rank takes its own.
///  3. `tell_` runs under `tell_mutex_`, and never under `mutex_`.
class ProcessGroup::Member {
 public:
  /// Of a group of one, which needs no network.
  Member(const RendezvousOptions& options, Identity identity);
  Member(const RendezvousOptions& options, Joined joined, WakeUp wake_up);
  ~Member() { leave(); }
  Member(const Member&) = delete;
  Member& operator=(const Member&) = delete;

  const RendezvousOptions& options() const { return options_; }
  const std::vector<Identity>& members() const { return members_; }

  Result<std::vector<std::string>> all_gather(const std::string& what, std::string mine,
                                              int64_t timeout_us);
  void report_fault(const Status& why);
  void on_fault(std::function<void(const Status&)> tell);
  Status fault() const;
  void leave();

 private:
  /// What became of the hub, as far as this rank knows.
  enum class HubState : uint8_t { kServes, kLeft, kLost };

  void watch();
  bool look(int64_t* heard_us, int64_t* looked_us);
  bool hand_over();
  bool take_messages();
  void take(const Message& message);
  void lose_hub(const std::string& why);
  void end_with(HubState state);
  void raise(Status fault);
  void tell();
  Status status_for_collective() const;
  Result<std::vector<std::string>> answer_of(uint64_t number, const Message& answer);

  const RendezvousOptions options_;
  const std::vector<Identity> members_;
  const uint64_t run_hash_;
  const int64_t silence_limit_us_ = 0;
  std::unique_ptr<Connection> connection_;  // the thread's; null in a group of one
  std::optional<WakeUp> wake_up_;

  mutable std::mutex mutex_;
  std::condition_variable changed_;
  std::vector<Frame> to_send_;
  std::optional<Message> answer_;  // to the collective under way
  uint64_t next_number_ = 0;       // of the next collective
  bool is_gathering_ = false;
  HubState hub_ = HubState::kServes;
  bool left_ = false;
  Status reported_;  // by this rank
  Status fault_;

  std::mutex tell_mutex_;
  std::function<void(const Status&)> tell_;

  bool has_ended_sending_ = false;  // the thread's
  int64_t gone_us_ = 0;             // the thread's: when to wait no longer for the hub's goodbye
  std::thread thread_;              // last: it uses all of the above
};

}  // namespace mkernel
