// The middle of the star: a thread in the process of rank 0 that lets the ranks in, passes on their
// collectives, watches over them and tells all of the first failure.
#pragma once
#include <poll.h>

#include <atomic>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include <mkernel/rendezvous.h>
#include <mkernel/status.h>

#include "rendezvous/collectives.h"
#include "rendezvous/connection.h"
#include "rendezvous/join_desk.h"
#include "rendezvous/owned_fd.h"
#include "rendezvous/socket.h"

namespace mkernel {

/// Thread safety: everything but `stop_` and `wake_up_` belongs to the hub's thread.
///  1. A stranger cannot end the run or take much of the process: until it is admitted its messages
///     are of kMaxApplicantBytes at most, it has kStrangerUs, and there are at most kMaxStrangers.
///  2. A failure is told to all members, and only the first one. So all ranks report the same.
///  3. The port is open while somebody may still come, and while all are there, so that who comes
///     second is told. When the group has failed, or the first has left, it is closed: the next
///     group may be at the same address, and its ranks must not meet this one.
///  4. Whoever is sent away is read from until it closes, or for kGoodbyeUs: closing over what it
///     has sent would tear the connection down, and with it what it has still to read.
class Hub {
 public:
  /// Serves the listener's port. own: one end of a pair, whose other end is rank 0's.
  static Result<std::unique_ptr<Hub>> start(const RendezvousOptions& options,
                                            std::shared_ptr<Listener> listener, OwnedFd own,
                                            int64_t join_deadline_us);
  /// Says goodbye to all who are still there.
  ~Hub();
  Hub(const Hub&) = delete;
  Hub& operator=(const Hub&) = delete;

 private:
  struct Peer {
    enum class Phase : uint8_t { kApplicant, kMember, kLeaving };
    Peer(OwnedFd fd, std::string from_where, uint64_t run_hash, const Applicant& as_applicant);
    Connection connection;
    std::string from;
    Applicant applicant;
    Phase phase = Phase::kApplicant;
    uint32_t rank = 0;        // of a member
    int64_t heard_us = 0;     // when it last said something
    int64_t deadline_us = 0;  // of an applicant to become a member, of who leaves to be gone
    bool has_ended_sending = false;
    bool is_gone = false;
  };

  Hub(const RendezvousOptions& options, std::shared_ptr<Listener> listener, WakeUp wake_up,
      int64_t join_deadline_us);
  void run();
  void look();
  int64_t next_look_us() const;

  void accept_strangers();
  bool make_room();
  void add_peer(OwnedFd fd, std::string from, bool is_local);

  void serve(Peer& peer);
  void take(Peer& peer, const Message& message);
  void take_from_applicant(Peer& peer, const Message& message);
  Status take_from_member(Peer& peer, const Message& message);
  void lose(Peer& peer, const std::string& why);
  void refuse(Peer& peer, const Status& why);
  void send_away(Peer& peer);
  void admit(Peer& peer);
  void welcome_all();

  void keep_time();
  void keep_time_of(Peer& peer);
  void end_join();
  void say_goodbye();
  void raise(Code code, const std::string& message);
  void send_answers();
  void send_to_members(const Frame& frame);
  Peer* member(uint32_t rank);

  const RendezvousOptions options_;
  const std::shared_ptr<Listener> listener_;
  const WakeUp wake_up_;
  const uint64_t run_hash_;
  const int64_t started_us_;
  int64_t join_deadline_us_;
  int64_t now_us_;  // of this look
  int64_t ping_us_ = 0;
  int64_t accept_us_ = 0;  // no stranger is let in before
  JoinDesk desk_;
  std::optional<Collectives> collectives_;  // from when all are there
  Status failure_;                          // of the join, or of a member later
  std::string last_refusal_;
  bool stopping_ = false;
  std::vector<std::unique_ptr<Peer>> peers_;
  std::vector<pollfd> polled_;
  std::atomic<bool> stop_{false};
  std::thread thread_;
};

}  // namespace mkernel
