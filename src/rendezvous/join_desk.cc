#include "rendezvous/join_desk.h"

namespace mkernel {
namespace {

Status refused(const std::string& message) { return {Code::kInvalidArgument, message}; }

}  // namespace

Status JoinDesk::admit(const Hello& hello, bool is_local) {
  const std::string name = name_of_rank(hello.rank, hello.identity);
  if (hello.world != world()) {
    return refused(name + " was started as one of " + std::to_string(hello.world) +
                   " ranks, and rank 0 as one of " + std::to_string(world()));
  }
  if (hello.rank >= world()) {
    return refused(name + ": its rank must be below " + std::to_string(world()));
  }
  std::optional<Identity>& member = members_[hello.rank];
  if (member) return refused(name + " comes second: " + name_of(hello.rank) + " is there already");
  if ((hello.rank == 0) != is_local) {
    return refused(name + " cannot be rank 0, which is the process that it connected to");
  }
  member = hello.identity;
  ++num_members_;
  return Status::ok();
}

void JoinDesk::remove(uint32_t rank) {
  members_[rank].reset();
  --num_members_;
}

std::vector<uint32_t> JoinDesk::missing() const {
  std::vector<uint32_t> ranks;
  for (uint32_t rank = 0; rank < world(); ++rank) {
    if (!members_[rank]) ranks.push_back(rank);
  }
  return ranks;
}

std::string JoinDesk::name_of(uint32_t rank) const {
  return members_[rank] ? name_of_rank(rank, *members_[rank]) : "rank " + std::to_string(rank);
}

std::vector<Identity> JoinDesk::members() const {
  std::vector<Identity> all;
  for (const std::optional<Identity>& member : members_) all.push_back(*member);
  return all;
}

Result<std::optional<Message>> Applicant::take(const Message& message) {
  if (state_ == State::kHello && message.type == MessageType::kHello) {
    std::optional<Hello> hello = Hello::decode(message.payload);
    if (!hello) return refused("its hello cannot be read");
    hello_ = std::move(*hello);
    hello_bytes_ = message.payload;
    state_ = State::kProof;
    return std::optional(Message{MessageType::kChallenge, encode_digest(challenge_)});
  }
  if (state_ == State::kProof && message.type == MessageType::kProof) {
    const std::optional<Digest> proof = decode_digest(message.payload);
    const Digest expected =
        proof_of_applicant(desk_->secret(), desk_->run_id(), challenge_, hello_bytes_);
    if (!proof || !same_digest(*proof, expected)) {
      return refused(name_of_rank(hello_.rank, hello_.identity) +
                     " does not know the secret of this run");
    }
    MK_RETURN_IF_ERROR(desk_->admit(hello_, is_local_));
    state_ = State::kAdmitted;
    const Digest own = proof_of_hub(desk_->secret(), desk_->run_id(), challenge_, hello_bytes_);
    return std::optional(Message{MessageType::kAdmitted, encode_digest(own)});
  }
  return refused("a message of type " + std::to_string(static_cast<int>(message.type)) +
                 " out of turn");
}

}  // namespace mkernel
