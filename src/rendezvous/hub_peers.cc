// What the hub does with what its peers say.
#include <algorithm>
#include <utility>

#include "rendezvous/hub.h"
#include "rendezvous/payload.h"
#include "rendezvous/text.h"

namespace mkernel {
namespace {

constexpr int64_t kGoodbyeUs = 1'000'000;
constexpr size_t kMaxRefusalBytes = 512;  // of what a stranger may put into an error message

}  // namespace

void Hub::serve(Peer& peer) {
  peer.heard_us = now_us_;
  const bool is_leaving = peer.phase == Peer::Phase::kLeaving;
  const bool is_open = is_leaving ? peer.connection.drain() : peer.connection.fill();
  while (peer.phase != Peer::Phase::kLeaving && !peer.is_gone) {
    Result<std::optional<Message>> message = peer.connection.next();
    if (!message) {
      lose(peer, "it sent " + message.status().message());
      break;
    }
    if (!message->has_value()) break;
    take(peer, **message);
  }
  if (is_open) return;
  if (peer.phase == Peer::Phase::kMember) lose(peer, peer.connection.why_closed());
  peer.is_gone = true;
}

void Hub::take(Peer& peer, const Message& message) {
  if (peer.phase == Peer::Phase::kApplicant) {
    take_from_applicant(peer, message);
    return;
  }
  if (Status status = take_from_member(peer, message); !status) {
    lose(peer, "it sent " + status.message());
  }
}

// --- Before it is a member ---

void Hub::take_from_applicant(Peer& peer, const Message& message) {
  Result<std::optional<Message>> answer = peer.applicant.take(message);
  if (!answer) {
    refuse(peer, answer.status());
    return;
  }
  if (*answer) peer.connection.queue((*answer)->type, (*answer)->payload);
  if (peer.applicant.is_admitted()) admit(peer);
}

void Hub::refuse(Peer& peer, const Status& why) {
  if (peer.phase == Peer::Phase::kApplicant) {
    last_refusal_ = printable(why.message(), kMaxRefusalBytes) + " (from " + peer.from + ")";
  }
  peer.connection.queue(MessageType::kRefuse, encode_error(0, why));
  send_away(peer);
}

void Hub::send_away(Peer& peer) {
  peer.phase = Peer::Phase::kLeaving;
  peer.deadline_us = now_us_ + kGoodbyeUs;
}

void Hub::admit(Peer& peer) {
  const Hello& hello = peer.applicant.hello();
  peer.phase = Peer::Phase::kMember;
  peer.rank = hello.rank;
  peer.connection.set_max_payload(kMaxToHubBytes);
  if (!failure_) {
    refuse(peer, failure_);
    return;
  }
  // The first whose time is up ends the join of all: without it the group cannot be complete.
  if (hello.rank != 0) {
    const int64_t left_us = std::clamp<int64_t>(hello.remaining_us, 0, options_.join_timeout_us);
    join_deadline_us_ = std::min(join_deadline_us_, now_us_ + left_us);
  }
  if (desk_.is_complete()) welcome_all();
}

void Hub::welcome_all() {
  const Welcome welcome{.silence_limit_us = options_.silence_limit_us, .members = desk_.members()};
  collectives_.emplace(desk_.members(), run_hash_);
  send_to_members(std::make_shared<const std::string>(
      encode_message(MessageType::kWelcome, run_hash_, welcome.encode())));
  for (const auto& peer : peers_) peer->heard_us = now_us_;
  ping_us_ = now_us_ + options_.heartbeat_us;
}

// --- Members ---

Status Hub::take_from_member(Peer& peer, const Message& message) {
  Status unreadable(Code::kInvalidArgument, "a message of type " +
                                                std::to_string(static_cast<int>(message.type)) +
                                                " that cannot be read, or out of turn");
  if (message.type == MessageType::kLeave) {
    if (collectives_) {
      listener_->close();
      collectives_->leave(peer.rank);
      send_answers();
    } else {
      desk_.remove(peer.rank);
    }
    send_away(peer);
    return Status::ok();
  }
  if (!collectives_) return unreadable;
  if (message.type == MessageType::kPong) return Status::ok();
  if (message.type == MessageType::kFault) {
    std::optional<ErrorPayload> error = decode_error(message.payload);
    if (!error) return unreadable;
    raise(error->status.code(), desk_.name_of(peer.rank) + " reported: " + error->status.message());
    return Status::ok();
  }
  std::optional<Contribution> contribution = Contribution::decode(message.payload);
  if (message.type != MessageType::kContribute || !contribution) return unreadable;
  if (!failure_) return Status::ok();  // nobody waits for it any more
  MK_RETURN_IF_ERROR(collectives_->contribute(peer.rank, std::move(*contribution), now_us_));
  send_answers();
  return Status::ok();
}

/// The peer is of no more use: it sent what it should not have, or is gone.
void Hub::lose(Peer& peer, const std::string& why) {
  if (peer.phase == Peer::Phase::kApplicant) {
    refuse(peer, Status(Code::kInvalidArgument, why));
  } else if (!collectives_) {
    last_refusal_ = desk_.name_of(peer.rank) + " came, and went again: " + why;
    desk_.remove(peer.rank);
    refuse(peer, Status(Code::kPeerFailed, why));
  } else {
    raise(Code::kPeerFailed,
          desk_.name_of(peer.rank) + " died, or was cut off without a goodbye: " + why);
    send_away(peer);
  }
}

void Hub::raise(Code code, const std::string& message) {
  if (!failure_ || stopping_) return;
  failure_ = Status(code, message.substr(0, kMaxTextBytes));
  listener_->close();
  send_to_members(std::make_shared<const std::string>(
      encode_message(MessageType::kFault, run_hash_, encode_error(0, failure_))));
}

void Hub::send_answers() {
  for (const Collectives::Answer& answer : collectives_->take_answers()) {
    if (Peer* peer = member(answer.rank)) peer->connection.queue(answer.frame);
  }
}

void Hub::send_to_members(const Frame& frame) {
  for (const auto& peer : peers_) {
    if (peer->phase == Peer::Phase::kMember) peer->connection.queue(frame);
  }
}

Hub::Peer* Hub::member(uint32_t rank) {
  for (const auto& peer : peers_) {
    if (peer->phase == Peer::Phase::kMember && peer->rank == rank) return peer.get();
  }
  return nullptr;
}

}  // namespace mkernel
