#include <algorithm>
#include <array>
#include <cstring>
#include <span>

#include "core/maths.h"
#include "core/watchdog.h"
#include "memory/heap_address.h"
#include "network/staged_endpoint.h"

namespace mkernel {
namespace {

// Ids of the endpoint below: a piece by peer and slot; anything else.
constexpr uint64_t kNoPiece = ~uint64_t{0};
constexpr uint32_t kPassesPerClock = 64;  // a look at the clock costs as much as a pass
constexpr uint64_t id_of_piece(uint32_t peer, uint32_t slot) { return uint64_t{peer} << 32 | slot; }

}  // namespace

Status Outbox::flush() {
  std::array<Write, 8> batch;
  while (!waiting_.empty() && num_in_flight_ < limit_) {
    const size_t count = std::min({batch.size(), waiting_.size(), size_t{limit_} - num_in_flight_});
    std::copy_n(waiting_.begin(), count, batch.begin());
    MK_RETURN_IF_ERROR(below_.post(std::span(batch).first(count)));
    waiting_.erase(waiting_.begin(), waiting_.begin() + static_cast<std::ptrdiff_t>(count));
    num_in_flight_ += static_cast<uint32_t>(count);
  }
  return Status::ok();
}

// --- Sending ---

StagedSender::StagedSender(const StagedConfig& config, SymmetricHeap& heap, StagedSlots& slots,
                           Outbox& outbox, std::unique_ptr<CopyChannel> channel)
    : config_(config),
      heap_(heap),
      slots_(slots),
      outbox_(outbox),
      channel_(std::move(channel)),
      lanes_(config.num_ranks) {
  for (Lane& lane : lanes_) lane.slots.resize(config.slots);
}

void StagedSender::write(const Write& w) {
  Lane& lane = lanes_[w.peer];
  if (lane.is_broken) {
    events_.push_back({.kind = Event::Kind::kFailed, .peer = w.peer, .id = w.id});
    return;
  }
  const uint64_t bytes = w.kind == Write::Kind::kFlag ? 0 : w.bytes;
  const auto num_pieces =
      static_cast<uint32_t>(std::max<uint64_t>(ceil_div(bytes, config_.piece_bytes), 1));
  lane.waiting.push_back(std::make_shared<Flight>(Flight{
      .write = w, .number = lane.num_writes++, .num_pieces = num_pieces, .num_left = num_pieces}));
  lane.waiting.back()->write.bytes = bytes;
  ++num_flights_;
}

Status StagedSender::progress() {
  if (num_flights_ > 0 && ++num_passes_ % kPassesPerClock == 0) break_silent_peers();
  for (uint32_t peer = 0; peer < lanes_.size(); ++peer) {
    Lane& lane = lanes_[peer];
    for (uint32_t slot = 0; slot < config_.slots && !lane.waiting.empty(); ++slot) {
      if (!lane.slots[slot].flight) MK_RETURN_IF_ERROR(fill(peer, slot));
    }
  }
  while (!copying_.empty()) {
    const Copy& copy = copying_.front();
    Result<bool> done = channel_->done(copy.mark);
    if (!done) return done.status();
    if (!*done) break;
    if (!lanes_[copy.peer].is_broken) send(copy.peer, copy.slot);
    copying_.pop_front();
  }
  return Status::ok();
}

/// The network below knows of no fault while a peer that is gone owes credit for what it was given.
void StagedSender::break_silent_peers() {
  const uint64_t now_ns = Watchdog::now_ns();
  for (uint32_t peer = 0; peer < lanes_.size(); ++peer) {
    const Lane& lane = lanes_[peer];
    const bool owes = std::ranges::any_of(
        lane.slots, [](const Slot& slot) { return slot.is_delivered && !slot.is_credited; });
    if (!owes || now_ns - lane.heard_ns <= config_.limit_ns) continue;
    break_peer(peer, "staged: no credit from rank " + std::to_string(peer) + " for " +
                         std::to_string(config_.limit_ns / 1000) + " us, writing to rank " +
                         std::to_string(peer));
  }
}

/// Begins to copy the next piece that waits into a free slot.
Status StagedSender::fill(uint32_t peer, uint32_t slot_idx) {
  Lane& lane = lanes_[peer];
  const std::shared_ptr<Flight> flight = lane.waiting.front();
  const Write& w = flight->write;
  Slot& slot = lane.slots[slot_idx];
  slot = {.flight = flight, .bytes = std::min(config_.piece_bytes, w.bytes - flight->next)};
  char* const data = slots_.data(false, peer, slot_idx);
  const bool is_flag = w.kind == Write::Kind::kFlag;
  const PieceHeader header{.write = flight->number,
                           .address = is_flag ? w.flag : w.remote_address + flight->next,
                           .bytes = slot.bytes,
                           .num_pieces = flight->num_pieces,
                           .value = w.value,
                           .kind = w.kind};
  std::memcpy(data, &header, sizeof header);
  if (slot.bytes > 0) {
    const char* const source = heap_.resolve(w.local_address + flight->next, slot.bytes);
    if (source == nullptr) {  // its plan went meanwhile
      return {Code::kInternal, "a region went while a write from it was on its way"};
    }
    MK_RETURN_IF_ERROR(channel_->copy(data + kHeaderBytes, source, slot.bytes));
  }
  Result<uint64_t> mark = channel_->mark();
  if (!mark) return mark.status();
  last_mark_ = *mark;
  copying_.push_back({peer, slot_idx, *mark});
  flight->next += slot.bytes;
  if (++flight->num_begun == flight->num_pieces) lane.waiting.pop_front();
  return Status::ok();
}

void StagedSender::send(uint32_t peer, uint32_t slot_idx) {
  outbox_.add({.kind = Write::Kind::kDataImmediate,
               .peer = peer,
               .local_address = slots_.address(false, peer, slot_idx),
               .remote_address = slots_.address(true, config_.rank, slot_idx),
               .bytes = kHeaderBytes + lanes_[peer].slots[slot_idx].bytes,
               .value = encode(Notice{Notice::Kind::kPiece, config_.rank, slot_idx}),
               .id = id_of_piece(peer, slot_idx)});
}

void StagedSender::delivered(uint64_t id, bool succeeded) {
  if (id == kNoPiece) return;
  const auto peer = static_cast<uint32_t>(id >> 32);
  const auto slot_idx = static_cast<uint32_t>(id);
  if (!succeeded) return;  // the peer is broken already
  lanes_[peer].heard_ns = Watchdog::now_ns();
  lanes_[peer].slots[slot_idx].is_delivered = true;
  free_slot(peer, slot_idx);
}

void StagedSender::credited(uint32_t peer, uint32_t slot_idx, bool is_placed) {
  if (slot_idx >= config_.slots) return;
  Slot& slot = lanes_[peer].slots[slot_idx];
  if (!slot.flight || slot.is_credited) return;
  slot.is_credited = true;
  lanes_[peer].heard_ns = Watchdog::now_ns();
  if (!is_placed) {
    last_error_ =
        "staged: rank " + std::to_string(peer) + " has no region any more where a write was to go";
  }
  end_piece(*slot.flight, is_placed);
  free_slot(peer, slot_idx);
}

void StagedSender::free_slot(uint32_t peer, uint32_t slot_idx) {
  Slot& slot = lanes_[peer].slots[slot_idx];
  if (slot.is_delivered && slot.is_credited) slot = {};
}

void StagedSender::end_piece(Flight& flight, bool succeeded) {
  flight.failed |= !succeeded;
  if (--flight.num_left > 0) return;
  --num_flights_;
  events_.push_back({.kind = flight.failed ? Event::Kind::kFailed : Event::Kind::kCompleted,
                     .peer = flight.write.peer,
                     .id = flight.write.id});
}

void StagedSender::break_peer(uint32_t peer, const std::string& why) {
  Lane& lane = lanes_[peer];
  if (std::exchange(lane.is_broken, true)) return;
  last_error_ = why;
  for (Slot& slot : lane.slots) {
    if (slot.flight && !std::exchange(slot.is_credited, true)) end_piece(*slot.flight, false);
  }
  for (const auto& flight : std::exchange(lane.waiting, {})) {
    for (uint32_t n = flight->num_pieces - flight->num_begun; n > 0; --n) end_piece(*flight, false);
  }
}

void StagedSender::abandon() {
  for (uint32_t peer = 0; peer < lanes_.size(); ++peer) {
    for (uint32_t slot_idx = 0; slot_idx < config_.slots; ++slot_idx) {
      const Slot& slot = lanes_[peer].slots[slot_idx];
      if (!slot.is_delivered || slot.is_credited) continue;
      const PieceHeader header{.is_void = true};
      std::memcpy(slots_.data(false, peer, slot_idx), &header, sizeof header);
      outbox_.add({.kind = Write::Kind::kData,
                   .peer = peer,
                   .local_address = slots_.address(false, peer, slot_idx),
                   .remote_address = slots_.address(true, config_.rank, slot_idx),
                   .bytes = kHeaderBytes,
                   .id = kNoPiece});
    }
  }
}

// --- Receiving ---

StagedReceiver::StagedReceiver(const StagedConfig& config, SymmetricHeap& heap, StagedSlots& slots,
                               Outbox& outbox, std::unique_ptr<CopyChannel> channel)
    : config_(config), heap_(heap), slots_(slots), outbox_(outbox), channel_(std::move(channel)) {}

Status StagedReceiver::arrived(uint32_t peer, uint32_t slot) {
  if (slot >= config_.slots) {
    return {Code::kPeerFailed, "staged: a piece of rank " + std::to_string(peer) + " in slot " +
                                   std::to_string(slot) + ": there are " +
                                   std::to_string(config_.slots)};
  }
  const char* const data = slots_.data(true, peer, slot);
  PieceHeader header;
  std::memcpy(static_cast<void*>(&header), data, sizeof header);
  if (header.is_void) return Status::ok();
  Result<bool> is_placed = place(header, data + kHeaderBytes);
  if (!is_placed) return is_placed.status();
  if (!*is_placed) {
    give_credit(peer, slot, Notice::Kind::kRefused);
    return Status::ok();
  }
  Result<uint64_t> mark = channel_->mark();
  if (!mark) return mark.status();
  last_mark_ = *mark;
  copying_.push_back({peer, slot, header, *mark});
  return Status::ok();
}

/// False if the heap has no such place.
Result<bool> StagedReceiver::place(const PieceHeader& header, const char* bytes) {
  if (header.kind == Write::Kind::kFlag) {
    if (header.address >= kMaxFlags) return false;
    const auto flag = static_cast<uint32_t>(header.address);
    MK_RETURN_IF_ERROR(channel_->store_flag(heap_.flag(flag), header.value));
    return true;
  }
  if (header.bytes == 0) return true;
  char* const target = heap_.resolve(header.address, header.bytes);
  if (target == nullptr || header.bytes > config_.piece_bytes) return false;
  MK_RETURN_IF_ERROR(channel_->copy(target, bytes, header.bytes));
  return true;
}

Status StagedReceiver::progress(std::deque<Event>& events) {
  while (!copying_.empty()) {
    const Copy copy = copying_.front();
    Result<bool> done = channel_->done(copy.mark);
    if (!done) return done.status();
    if (!*done) break;
    copying_.pop_front();
    give_credit(copy.peer, copy.slot, Notice::Kind::kCredit);
    if (copy.header.num_pieces > 1) {
      const auto it =
          num_to_come_.try_emplace({copy.peer, copy.header.write}, copy.header.num_pieces).first;
      if (--it->second > 0) continue;
      num_to_come_.erase(it);
    }
    if (copy.header.kind != Write::Kind::kDataImmediate) continue;
    events.push_back(
        {.kind = Event::Kind::kArrived, .peer = copy.peer, .value = copy.header.value});
  }
  return Status::ok();
}

void StagedReceiver::give_credit(uint32_t peer, uint32_t slot, Notice::Kind kind) {
  outbox_.add({.kind = Write::Kind::kDataImmediate,
               .peer = peer,
               .value = encode(Notice{kind, config_.rank, slot}),
               .id = kNoPiece});
}

}  // namespace mkernel
