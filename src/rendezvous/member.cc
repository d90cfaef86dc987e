#include "rendezvous/member.h"

#include <utility>

#include "rendezvous/payload.h"
#include "rendezvous/quiet_thread.h"
#include "rendezvous/text.h"

namespace mkernel {
namespace {

constexpr int64_t kMaxTimeoutUs = 1'000'000'000'000;

}  // namespace

ProcessGroup::Member::Member(const RendezvousOptions& options, Identity identity)
    : options_(options), members_({std::move(identity)}), run_hash_(0) {}

ProcessGroup::Member::Member(const RendezvousOptions& options, Joined joined, WakeUp wake_up)
    : options_(options),
      members_(std::move(joined.members)),
      run_hash_(hash_of_run(options.run_id)),
      silence_limit_us_(joined.silence_limit_us),
      connection_(std::move(joined.connection)),
      wake_up_(std::move(wake_up)),
      thread_(start_quiet_thread([this] { watch(); })) {}

Result<std::vector<std::string>> ProcessGroup::Member::all_gather(const std::string& what,
                                                                  std::string mine,
                                                                  int64_t timeout_us) {
  const std::string name = "collective \"" + printable(what, kMaxWhatBytes) + "\": ";
  if (what.size() > kMaxWhatBytes || mine.size() > kMaxContributionBytes) {
    return Status(Code::kInvalidArgument, name + "a name of " + std::to_string(what.size()) +
                                              " bytes, at most " + std::to_string(kMaxWhatBytes) +
                                              ", and a part of " + std::to_string(mine.size()) +
                                              ", at most " + std::to_string(kMaxContributionBytes));
  }
  if (timeout_us < 1 || timeout_us > kMaxTimeoutUs) {
    return Status(Code::kInvalidArgument, name + "a limit of " + std::to_string(timeout_us) +
                                              " us: from 1 to " + std::to_string(kMaxTimeoutUs));
  }
  std::unique_lock lock(mutex_);
  MK_RETURN_IF_ERROR(status_for_collective());
  if (members_.size() == 1) return std::vector{std::move(mine)};
  if (is_gathering_) {
    return Status(Code::kInvalidArgument,
                  name + "another one is under way in a second thread of this rank");
  }
  is_gathering_ = true;
  const uint64_t number = next_number_++;
  answer_.reset();
  to_send_.push_back(std::make_shared<const std::string>(encode_message(
      MessageType::kContribute, run_hash_,
      Contribution{.number = number, .timeout_us = timeout_us, .what = what, .part = mine}
          .encode())));
  wake_up_->wake();
  // The hub keeps the time, so that all ranks agree on whether it was enough. That the hub answers
  // at all is the watching thread's care.
  changed_.wait(lock, [this] { return answer_ || !status_for_collective(); });
  is_gathering_ = false;
  if (!answer_) return status_for_collective();
  const Message answer = std::move(*answer_);
  answer_.reset();
  lock.unlock();
  return answer_of(number, answer);
}

Result<std::vector<std::string>> ProcessGroup::Member::answer_of(uint64_t number,
                                                                 const Message& answer) {
  if (answer.type == MessageType::kResult) {
    auto parts = decode_result(answer.payload, number, static_cast<uint32_t>(members_.size()));
    if (parts) return std::move(*parts);
  } else if (std::optional<ErrorPayload> error = decode_error(answer.payload)) {
    if (error->number == number) return std::move(error->status);
  }
  return Status(Code::kInternal, name_of_rank(0, members_[0]) + " sent the answer to collective " +
                                     std::to_string(number) + " in a form that cannot be read");
}

Status ProcessGroup::Member::status_for_collective() const {
  if (!fault_) return fault_;
  if (left_) return {Code::kUnavailable, "this rank has left the group"};
  if (hub_ == HubState::kServes) return Status::ok();
  return {Code::kPeerFailed, name_of_rank(0, members_[0]) + " has left the group"};
}

void ProcessGroup::Member::report_fault(const Status& why) {
  if (why.is_ok()) return;
  {
    const std::scoped_lock lock(mutex_);
    if (!fault_ || !reported_) return;
    reported_ = Status(why.code(), why.message().substr(0, kMaxTextBytes));
    if (members_.size() > 1 && hub_ == HubState::kServes && !left_) {
      to_send_.push_back(std::make_shared<const std::string>(
          encode_message(MessageType::kFault, run_hash_, encode_error(0, reported_))));
      wake_up_->wake();
      return;
    }
    fault_ = reported_;  // nobody is there to be told
    changed_.notify_all();
  }
  tell();
}

void ProcessGroup::Member::on_fault(std::function<void(const Status&)> tell_whom) {
  {
    const std::scoped_lock lock(tell_mutex_);
    tell_ = std::move(tell_whom);
  }
  tell();
}

Status ProcessGroup::Member::fault() const {
  const std::scoped_lock lock(mutex_);
  return fault_;
}

void ProcessGroup::Member::tell() {
  const Status status = fault();
  const std::scoped_lock lock(tell_mutex_);
  if (status.is_ok() || !tell_) return;
  std::exchange(tell_, nullptr)(status);
}

void ProcessGroup::Member::leave() {
  {
    const std::scoped_lock lock(mutex_);
    left_ = true;
    changed_.notify_all();
  }
  if (!thread_.joinable()) return;
  wake_up_->wake();
  thread_.join();
}

}  // namespace mkernel
