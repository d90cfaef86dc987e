// The thread that watches a member's connection to the hub.
#include <poll.h>

#include <algorithm>
#include <array>
#include <utility>

#include "rendezvous/member.h"
#include "rendezvous/payload.h"
#include "rendezvous/text.h"

namespace mkernel {
namespace {

constexpr int64_t kGoodbyeUs = 1'000'000;
constexpr int64_t kLongestLookUs = 60'000'000;

}  // namespace

void ProcessGroup::Member::watch() {
  int64_t looked_us = steady_us(), heard_us = looked_us;
  while (look(&heard_us, &looked_us)) {
  }
  connection_.reset();  // so that the hub sees at once that this rank needs nothing more
}

/// Waits for something to happen, and deals with it. False: there is nothing left to watch.
bool ProcessGroup::Member::look(int64_t* heard_us, int64_t* looked_us) {
  if (!hand_over()) return false;
  const int events = connection_->wants_to_send() ? POLLIN | POLLOUT : POLLIN;
  std::array<pollfd, 2> polled = {
      {{.fd = wake_up_->fd(), .events = POLLIN, .revents = 0},
       {.fd = connection_->fd(), .events = static_cast<short>(events), .revents = 0}}};
  const int64_t limit_us = has_ended_sending_ ? kGoodbyeUs : silence_limit_us_;
  const int64_t until_us = has_ended_sending_ ? gone_us_ : *heard_us + silence_limit_us_;
  const int64_t wait_us = std::clamp<int64_t>(until_us - steady_us(), 0, limit_us / 4) + 999;
  (void)poll(polled.data(), polled.size(),
             static_cast<int>(std::min(wait_us, kLongestLookUs) / 1000));

  const int64_t now_us = steady_us();
  // A process that was stopped has not listened: that time is not the hub's silence.
  const int64_t last_us = std::exchange(*looked_us, now_us);
  if (now_us - last_us > silence_limit_us_ / 2) *heard_us += now_us - last_us;
  if (polled[0].revents != 0) wake_up_->clear();
  if (polled[1].revents != 0) {
    *heard_us = now_us;
    if (!take_messages()) return false;
  }
  if (has_ended_sending_) return now_us < gone_us_;
  if (now_us - *heard_us <= silence_limit_us_) return true;
  lose_hub("fell silent: nothing was heard of it for " + text_of_us(silence_limit_us_));
  return false;
}

/// Takes over what callers want to be sent. False: they want nothing more, and there is no hub.
bool ProcessGroup::Member::hand_over() {
  std::vector<Frame> frames;
  bool leaving = false;
  {
    const std::scoped_lock lock(mutex_);
    if (hub_ != HubState::kServes) return false;
    frames.swap(to_send_);
    leaving = left_;
  }
  for (Frame& frame : frames) connection_->queue(std::move(frame));
  if (leaving && gone_us_ == 0) {
    gone_us_ = steady_us() + kGoodbyeUs;
    connection_->queue(MessageType::kLeave, "");
  }
  connection_->flush();
  if (leaving && !has_ended_sending_ &&
      (!connection_->wants_to_send() || steady_us() >= gone_us_)) {
    has_ended_sending_ = true;
    connection_->end_sending();
  }
  return true;
}

bool ProcessGroup::Member::take_messages() {
  const bool is_open = connection_->fill();
  for (;;) {
    Result<std::optional<Message>> message = connection_->next();
    if (!message) {
      lose_hub("sent " + message.status().message());
      return false;
    }
    if (!message->has_value()) break;
    take(**message);
  }
  if (!is_open) lose_hub("died, or was cut off without a goodbye: " + connection_->why_closed());
  return is_open;
}

void ProcessGroup::Member::take(const Message& message) {
  if (message.type == MessageType::kPing) {
    connection_->queue(MessageType::kPong, "");
  } else if (message.type == MessageType::kLeave) {
    end_with(HubState::kLeft);
  } else if (message.type == MessageType::kResult || message.type == MessageType::kNoResult) {
    const std::scoped_lock lock(mutex_);
    // Behind a fault, others leave; that a collective fails for that is not the cause.
    if (fault_) answer_ = message;
    changed_.notify_all();
  } else if (message.type == MessageType::kFault) {
    std::optional<ErrorPayload> error = decode_error(message.payload);
    raise(error ? std::move(error->status)
                : Status(Code::kPeerFailed, "a rank has failed, and the report cannot be read"));
  }
}

void ProcessGroup::Member::lose_hub(const std::string& why) {
  bool is_fault = false;
  Status reported;
  {
    const std::scoped_lock lock(mutex_);
    is_fault = hub_ == HubState::kServes && !left_;
    reported = reported_;
  }
  if (is_fault) {
    const Status lost(Code::kPeerFailed, name_of_rank(0, members_[0]) + " " + why);
    raise(reported.is_ok() ? lost : reported);
  }
  end_with(HubState::kLost);
}

void ProcessGroup::Member::end_with(HubState state) {
  const std::scoped_lock lock(mutex_);
  if (hub_ == HubState::kServes) hub_ = state;
  changed_.notify_all();
}

void ProcessGroup::Member::raise(Status fault) {
  {
    const std::scoped_lock lock(mutex_);
    if (!fault_) return;
    fault_ = std::move(fault);
    changed_.notify_all();
  }
  tell();
}

}  // namespace mkernel
