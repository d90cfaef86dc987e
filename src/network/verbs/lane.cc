#include "network/verbs/lane.h"

#include <algorithm>
#include <utility>

namespace mkernel::verbs {

Lane::Lane(Rail& rail, std::unique_ptr<QueuePair> pair, const LaneConfig& config)
    : rail_(rail),
      config_(config),
      in_order_(config.service == Service::kConnected),
      slots_(config.depth),
      pair_(std::move(pair)) {
  for (uint32_t slot = config.depth; slot-- > 0;) free_.push_back(slot);
}

SendRequest Lane::prepare(uint32_t slot) {
  Request& request = *slots_[slot];
  request.wr.id = uint64_t{config_.index} << 32 | slot;
  if (request.flag) {
    // A word of its own until the request is complete: the NIC may read it any time.
    uint32_t& word = rail_.words[config_.first_word + slot];
    word = *request.flag;
    request.wr.local_address = reinterpret_cast<uint64_t>(&word);
    request.wr.lkey = rail_.words_region->lkey();
    request.wr.bytes = sizeof word;
    request.wr.is_inline = pair_->inline_bytes() >= sizeof word;
  }
  return request.wr;
}

Status Lane::flush() {
  const size_t count = std::min({pending_.size(), free_.size(), size_t{rail_.sends_room}});
  if (count == 0) return Status::ok();
  chain_.clear();
  for (size_t i = 0; i < count; ++i) {
    const uint32_t slot = free_.back();
    free_.pop_back();
    slots_[slot] = pending_.front();
    pending_.pop_front();
    if (in_order_) order_.push_back(slot);
    if (in_order_ && i > 0 && slots_[slot]->flag) chain_.back().signaled = false;
    chain_.push_back(prepare(slot));
  }
  rail_.sends_room -= static_cast<uint32_t>(count);
  return pair_->post_send(chain_);
}

std::vector<Request> Lane::take_pending(uint32_t peer) {
  const auto first = std::stable_partition(pending_.begin(), pending_.end(),
                                           [peer](const Request& r) { return r.peer != peer; });
  std::vector<Request> taken(first, pending_.end());
  pending_.erase(first, pending_.end());
  return taken;
}

void Lane::complete(uint64_t id, std::vector<Request>& ended) {
  const auto slot = static_cast<uint32_t>(id);
  if (slot >= slots_.size() || !slots_[slot]) return;
  const size_t num_before = ended.size();
  const auto end = [&](uint32_t s) {
    ended.push_back(*std::exchange(slots_[s], std::nullopt));
    free_.push_back(s);
  };
  if (in_order_) {
    for (; order_.front() != slot; order_.pop_front()) end(order_.front());
    order_.pop_front();
  }
  end(slot);
  rail_.sends_room += static_cast<uint32_t>(ended.size() - num_before);
}

}  // namespace mkernel::verbs
