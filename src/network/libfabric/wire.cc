#include "network/libfabric/wire.h"

#include <algorithm>
#include <array>

#include "core/watchdog.h"

namespace mkernel::libfabric {
namespace {

constexpr size_t kReadAtOnce = 16;

}  // namespace

Wire::Wire(Port& port, uint32_t num_ranks, uint64_t limit_ns)
    : port_(port), limit_ns_(limit_ns), lanes_(num_ranks) {}

Transfer* Wire::acquire() {
  if (free_.empty()) return &transfers_.emplace_back();
  Transfer* const transfer = free_.back();
  free_.pop_back();
  return transfer;
}

void Wire::send(Transfer* transfer) {
  Lane& lane = lanes_[transfer->peer];
  if (lane.waiting.empty() && offer(transfer)) return;
  add_relaxed<Scope::kSys>(&num_retries_, uint64_t{1});
  if (lane.waiting.empty()) {
    lanes_waiting_.push_back(transfer->peer);
    lane.progress_ns = Watchdog::now_ns();
  }
  lane.waiting.push_back(transfer);
}

bool Wire::offer(Transfer* transfer) {
  if (lanes_[transfer->peer].broken) {
    failed_.push_back(transfer);
    return true;
  }
  const int64_t code = port_.write(*transfer);
  if (code == -FI_EAGAIN) return false;
  if (code == 0) {
    ++num_sent_;
  } else {
    fail(transfer, port_.who() + ": fi_writemsg: " + port_.text_of(code));
  }
  return true;
}

void Wire::break_lane(uint32_t peer, const std::string& text) {
  last_error_ = text;
  lanes_[peer].broken = true;
}

void Wire::fail(Transfer* transfer, const std::string& text) {
  break_lane(transfer->peer, text + ", writing " + std::to_string(transfer->bytes) +
                                 " bytes to rank " + std::to_string(transfer->peer));
  failed_.push_back(transfer);
}

void Wire::offer_waiting(Lane& lane) {
  bool taken = false;
  while (!lane.waiting.empty() && offer(lane.waiting.front())) {
    lane.waiting.pop_front();
    taken = true;
  }
  if (lane.waiting.empty()) return;
  const uint64_t now_ns = Watchdog::now_ns();
  if (taken) lane.progress_ns = now_ns;
  if (now_ns - lane.progress_ns <= limit_ns_) return;
  fail(lane.waiting.front(), port_.who() + ": not taken, and nothing delivered, for " +
                                 std::to_string(limit_ns_ / 1000) + " us");
  lane.waiting.pop_front();
}

Status Wire::poll(size_t limit, std::vector<WireEvent>& events) {
  if (!lanes_waiting_.empty()) {
    for (const uint32_t peer : lanes_waiting_) offer_waiting(lanes_[peer]);
    std::erase_if(lanes_waiting_, [this](uint32_t peer) { return lanes_[peer].waiting.empty(); });
  }
  MK_RETURN_IF_ERROR(read(limit, events));
  for (Transfer* t : failed_) events.push_back({.kind = WireEvent::Kind::kFailed, .transfer = t});
  failed_.clear();
  return Status::ok();
}

Status Wire::read(size_t limit, std::vector<WireEvent>& events) {
  std::array<fi_cq_data_entry, kReadAtOnce> entries{};
  while (events.size() < limit) {
    const size_t at_once = std::min(limit - events.size(), entries.size());
    const int64_t count = port_.read({entries.data(), at_once});
    if (count == -FI_EAGAIN) break;
    if (count == -FI_EAVAIL) {
      MK_RETURN_IF_ERROR(read_failure());
      continue;
    }
    if (count < 0) {
      return {Code::kPeerFailed, port_.who() + ": fi_cq_read: " + port_.text_of(count)};
    }
    for (int64_t i = 0; i < count; ++i) complete(entries[static_cast<size_t>(i)], events);
  }
  return Status::ok();
}

void Wire::complete(const fi_cq_data_entry& entry, std::vector<WireEvent>& events) {
  // FI_WRITE: an own write, of which a provider may say that it carried data.
  if ((entry.flags & FI_REMOTE_CQ_DATA) != 0 && (entry.flags & FI_WRITE) == 0) {
    events.push_back({.kind = WireEvent::Kind::kData, .data = entry.data});
    return;
  }
  auto* const transfer = static_cast<Transfer*>(entry.op_context);
  if (transfer == nullptr) return;
  --num_sent_;
  Lane& lane = lanes_[transfer->peer];
  if (!lane.waiting.empty()) lane.progress_ns = Watchdog::now_ns();
  events.push_back({.kind = WireEvent::Kind::kSent, .transfer = transfer});
}

Status Wire::read_failure() {
  const Port::Failure failure = port_.read_error();
  auto* const transfer = static_cast<Transfer*>(failure.context);
  if (transfer == nullptr) {
    last_error_ = failure.text;
    return {Code::kPeerFailed, failure.text};
  }
  --num_sent_;
  fail(transfer, failure.text);
  return Status::ok();
}

}  // namespace mkernel::libfabric
