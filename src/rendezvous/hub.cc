#include "rendezvous/hub.h"

#include <algorithm>
#include <limits>
#include <utility>

#include "rendezvous/payload.h"
#include "rendezvous/quiet_thread.h"
#include "rendezvous/text.h"

namespace mkernel {
namespace {

constexpr size_t kMaxStrangers = 128;
constexpr int64_t kStrangerUs = 5'000'000;
constexpr int64_t kEvictableUs = 1'000'000;  // an honest applicant needs milliseconds
constexpr int64_t kAcceptPauseUs = 200'000;  // where accepting is not possible now

}  // namespace

Hub::Peer::Peer(OwnedFd fd, std::string from_where, uint64_t run_hash,
                const Applicant& as_applicant)
    : connection(std::move(fd), run_hash, kMaxApplicantBytes),
      from(std::move(from_where)),
      applicant(as_applicant) {}

Result<std::unique_ptr<Hub>> Hub::start(const RendezvousOptions& options,
                                        std::shared_ptr<Listener> listener, OwnedFd own,
                                        int64_t join_deadline_us) {
  Result<WakeUp> wake_up = WakeUp::create();
  if (!wake_up) return wake_up.status();
  std::unique_ptr<Hub> hub(
      new Hub(options, std::move(listener), std::move(*wake_up), join_deadline_us));
  hub->add_peer(std::move(own), "this process", /*is_local=*/true);
  hub->thread_ = start_quiet_thread([h = hub.get()] { h->run(); });
  return hub;
}

Hub::Hub(const RendezvousOptions& options, std::shared_ptr<Listener> listener, WakeUp wake_up,
         int64_t join_deadline_us)
    : options_(options),
      listener_(std::move(listener)),
      wake_up_(std::move(wake_up)),
      run_hash_(hash_of_run(options.run_id)),
      started_us_(steady_us()),
      join_deadline_us_(join_deadline_us),
      now_us_(started_us_),
      desk_(options.world, options.run_id, options.secret) {}

Hub::~Hub() {
  stop_ = true;
  wake_up_.wake();
  thread_.join();
}

void Hub::run() {
  while (!stopping_ || !peers_.empty()) look();
}

// --- One look at all connections ---

void Hub::look() {
  const bool accepts = now_us_ >= accept_us_;
  polled_.clear();
  polled_.push_back({.fd = wake_up_.fd(), .events = POLLIN, .revents = 0});
  polled_.push_back({.fd = accepts ? listener_->fd() : -1, .events = POLLIN, .revents = 0});
  for (const auto& peer : peers_) {
    const int events = peer->connection.wants_to_send() ? POLLIN | POLLOUT : POLLIN;
    polled_.push_back(
        {.fd = peer->connection.fd(), .events = static_cast<short>(events), .revents = 0});
  }
  const int64_t wait_us = std::clamp<int64_t>(next_look_us() - now_us_, 0, options_.heartbeat_us);
  (void)poll(polled_.data(), polled_.size(), static_cast<int>((wait_us + 999) / 1000));

  const int64_t last_us = std::exchange(now_us_, steady_us());
  // A process that was stopped has not listened: that time is nobody's silence.
  if (now_us_ - last_us > 2 * options_.heartbeat_us) {
    for (const auto& peer : peers_) peer->heard_us += now_us_ - last_us;
  }
  if (polled_[0].revents != 0) wake_up_.clear();
  const size_t num_polled = peers_.size();
  for (size_t i = 0; i < num_polled; ++i) {
    if (polled_[i + 2].revents != 0) serve(*peers_[i]);
  }
  if (polled_[1].revents != 0 && listener_->fd() >= 0) accept_strangers();
  keep_time();
  for (const auto& peer : peers_) peer->connection.flush();
  std::erase_if(peers_, [](const auto& peer) { return peer->is_gone; });
}

int64_t Hub::next_look_us() const {
  int64_t next_us = desk_.is_complete() ? ping_us_ : join_deadline_us_;
  if (collectives_) next_us = std::min(next_us, collectives_->next_deadline_us());
  for (const auto& peer : peers_) {
    if (peer->phase != Peer::Phase::kMember) next_us = std::min(next_us, peer->deadline_us);
  }
  if (accept_us_ > now_us_) next_us = std::min(next_us, accept_us_);
  return next_us;
}

// --- Who comes ---

void Hub::accept_strangers() {
  while (make_room()) {
    Result<Accepted> accepted = accept_one(listener_->fd());
    if (!accepted) break;  // no descriptors left: some may be, later
    if (!accepted->fd) return;
    add_peer(std::move(accepted->fd), std::move(accepted->from), /*is_local=*/false);
  }
  accept_us_ = now_us_ + kAcceptPauseUs;
}

/// Whether one more stranger may be served; for that the one who has kept the hub waiting the
/// longest may have to go.
bool Hub::make_room() {
  size_t num_strangers = 0;
  Peer* oldest = nullptr;
  for (const auto& peer : peers_) {
    if (peer->phase != Peer::Phase::kApplicant || peer->is_gone) continue;
    if (peer->applicant.is_local()) continue;
    ++num_strangers;
    if (oldest == nullptr || peer->deadline_us < oldest->deadline_us) oldest = peer.get();
  }
  if (num_strangers < kMaxStrangers) return true;
  if (now_us_ - (oldest->deadline_us - kStrangerUs) < kEvictableUs) return false;
  oldest->is_gone = true;
  return true;
}

void Hub::add_peer(OwnedFd fd, std::string from, bool is_local) {
  peers_.push_back(std::make_unique<Peer>(std::move(fd), std::move(from), run_hash_,
                                          Applicant(&desk_, random_digest(), is_local)));
  // Rank 0's own connection is no stranger, and cannot try again.
  peers_.back()->deadline_us = is_local ? join_deadline_us_ : now_us_ + kStrangerUs;
}

// --- What time brings ---

void Hub::keep_time() {
  if (stop_ && !stopping_) say_goodbye();
  if (failure_.is_ok() && !desk_.is_complete() && now_us_ >= join_deadline_us_) end_join();
  if (collectives_) {
    collectives_->expire(now_us_);
    send_answers();
    if (now_us_ >= ping_us_) {
      ping_us_ = now_us_ + options_.heartbeat_us;
      send_to_members(
          std::make_shared<const std::string>(encode_message(MessageType::kPing, run_hash_, "")));
    }
  }
  for (const auto& peer : peers_) keep_time_of(*peer);
}

void Hub::keep_time_of(Peer& peer) {
  if (peer.phase != Peer::Phase::kMember) {
    if (peer.phase == Peer::Phase::kLeaving && !peer.connection.wants_to_send() &&
        !std::exchange(peer.has_ended_sending, true)) {
      peer.connection.end_sending();
    }
    if (now_us_ >= peer.deadline_us) peer.is_gone = true;
  } else if (collectives_ && now_us_ - peer.heard_us > options_.silence_limit_us) {
    raise(Code::kPeerFailed, desk_.name_of(peer.rank) +
                                 " fell silent: nothing was heard of it for " +
                                 text_of_us(options_.silence_limit_us));
  }
}

/// Not all have come. Those who have are told who is missing.
void Hub::end_join() {
  const bool own_limit = join_deadline_us_ - started_us_ + 1'000'000 > options_.join_timeout_us;
  const int64_t waited_us =
      own_limit ? options_.join_timeout_us : (now_us_ - started_us_) / 1000 * 1000;
  std::string why = text_of_ranks(desk_.missing()) + " did not come within " +
                    text_of_us(waited_us) + " (rank 0 listens at " + listener_->bound_to() + ")";
  if (!last_refusal_.empty()) why += "; the last one refused: " + last_refusal_;
  failure_ = Status(Code::kTimeout, why);
  listener_->close();
  for (const auto& peer : peers_) {
    if (peer->phase == Peer::Phase::kMember) refuse(*peer, failure_);
  }
}

void Hub::say_goodbye() {
  stopping_ = true;
  listener_->close();
  for (const auto& peer : peers_) {
    if (peer->phase == Peer::Phase::kLeaving) continue;
    if (desk_.is_complete() && peer->phase == Peer::Phase::kMember) {
      peer->connection.queue(MessageType::kLeave, "");
      send_away(*peer);
    } else {
      refuse(*peer, failure_.is_ok() ? Status(Code::kPeerFailed, "rank 0 has given up the join")
                                     : failure_);
    }
  }
}

}  // namespace mkernel
