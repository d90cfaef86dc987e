#include "rendezvous/collectives.h"

#include <algorithm>
#include <limits>
#include <memory>
#include <utility>

#include "rendezvous/text.h"

namespace mkernel {

Status Collectives::contribute(uint32_t rank, Contribution contribution, int64_t now_us) {
  const uint64_t number = contribution.number;
  if (number != next_[rank] || contribution.timeout_us <= 0 ||
      contribution.timeout_us > std::numeric_limits<int64_t>::max() - now_us) {
    return {Code::kInvalidArgument, "a part of collective " + std::to_string(number) + " (limit " +
                                        std::to_string(contribution.timeout_us) +
                                        " us) where one of " + std::to_string(next_[rank]) +
                                        " was due"};
  }
  ++next_[rank];
  const int64_t timeout_us = contribution.timeout_us;
  auto [it, is_new] = rounds_.try_emplace(number);
  Round& round = it->second;
  if (is_new) {
    round.what = contribution.what;
    round.first_rank = rank;
    round.parts.resize(members_.size());
    round.deadline_us = std::numeric_limits<int64_t>::max();
  }
  if (now_us + timeout_us < round.deadline_us) {
    round.deadline_us = now_us + timeout_us;
    round.timeout_us = timeout_us;
  }
  add(round, number, rank, std::move(contribution));
  settle(number);
  return Status::ok();
}

void Collectives::add(Round& round, uint64_t number, uint32_t rank, Contribution contribution) {
  ++round.num_parts;
  round.num_bytes += contribution.part.size();
  const bool agrees = contribution.what == round.what;
  const std::string what = printable(contribution.what, kMaxWhatBytes);
  round.parts[rank] = round.failure ? std::string() : std::move(contribution.part);
  if (round.failure) {
    answers_.push_back({rank, round.failure});
  } else if (!agrees) {
    fail(round, number, Code::kInvalidArgument,
         "ranks disagree on what comes next: " + name_of_rank(rank, members_[rank]) + " is at \"" +
             what + "\", " + name_of_rank(round.first_rank, members_[round.first_rank]) +
             " is at \"" + printable(round.what, kMaxWhatBytes) + "\"");
  } else if (round.num_bytes > kMaxResultBytes) {
    fail(round, number, Code::kInvalidArgument,
         "the parts of \"" + what + "\" are more than " + std::to_string(kMaxResultBytes) +
             " bytes together");
  }
}

void Collectives::settle(uint64_t number) {
  Round& round = rounds_.at(number);
  if (!round.failure && round.num_parts == members_.size()) {
    std::vector<std::string> parts;
    for (std::optional<std::string>& part : round.parts) parts.push_back(std::move(*part));
    const Frame result = std::make_shared<const std::string>(
        encode_message(MessageType::kResult, run_hash_, encode_result(number, parts)));
    for (uint32_t rank = 0; rank < members_.size(); ++rank) answers_.push_back({rank, result});
    rounds_.erase(number);
    return;
  }
  bool somebody_will_come = false;
  for (uint32_t rank = 0; rank < members_.size(); ++rank) {
    if (round.parts[rank]) continue;
    if (!left_[rank]) {
      somebody_will_come = true;
    } else if (!round.failure) {
      fail(round, number, Code::kPeerFailed,
           name_of_rank(rank, members_[rank]) + " has left, and \"" +
               printable(round.what, kMaxWhatBytes) + "\" needs it");
    }
  }
  if (round.failure && !somebody_will_come) rounds_.erase(number);
}

void Collectives::leave(uint32_t rank) {
  left_[rank] = 1;
  std::vector<uint64_t> numbers;
  for (const auto& [number, round] : rounds_) numbers.push_back(number);
  for (const uint64_t number : numbers) settle(number);
}

void Collectives::expire(int64_t now_us) {
  for (auto& [number, round] : rounds_) {
    if (round.failure || now_us < round.deadline_us) continue;
    fail(round, number, Code::kTimeout,
         missing_from(round) + " did not come to \"" + printable(round.what, kMaxWhatBytes) +
             "\" within " + text_of_us(round.timeout_us));
  }
}

int64_t Collectives::next_deadline_us() const {
  int64_t next_us = std::numeric_limits<int64_t>::max();
  for (const auto& [number, round] : rounds_) {
    if (!round.failure) next_us = std::min(next_us, round.deadline_us);
  }
  return next_us;
}

void Collectives::fail(Round& round, uint64_t number, Code code, const std::string& why) {
  round.failure = std::make_shared<const std::string>(
      encode_message(MessageType::kNoResult, run_hash_, encode_error(number, Status(code, why))));
  for (uint32_t rank = 0; rank < members_.size(); ++rank) {
    if (!round.parts[rank]) continue;
    round.parts[rank]->clear();
    round.parts[rank]->shrink_to_fit();
    answers_.push_back({rank, round.failure});
  }
}

std::string Collectives::missing_from(const Round& round) const {
  std::vector<uint32_t> ranks;
  for (uint32_t rank = 0; rank < members_.size(); ++rank) {
    if (!round.parts[rank]) ranks.push_back(rank);
  }
  if (ranks.size() == 1) return name_of_rank(ranks[0], members_[ranks[0]]);
  return text_of_ranks(ranks);
}

}  // namespace mkernel
