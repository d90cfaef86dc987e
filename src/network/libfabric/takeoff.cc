#include "network/libfabric/takeoff.h"

#include <algorithm>
#include <cstring>
#include <string>
#include <utility>

namespace mkernel::libfabric {

Takeoff::Takeoff(Wire& wire, std::deque<Event>& events, const StagingConfig& config)
    : wire_(wire), events_(events), config_(config), lanes_(config.num_ranks) {}

Result<std::unique_ptr<Takeoff>> Takeoff::create(Wire& wire, Port& port, DeviceMemory& memory,
                                                 std::deque<Event>& events,
                                                 const StagingConfig& config) {
  std::unique_ptr<Takeoff> takeoff(new Takeoff(wire, events, config));
  Result<std::unique_ptr<CopyChannel>> channel = memory.create_channel();
  if (!channel) return channel.status();
  takeoff->channel_ = std::move(*channel);
  Result<std::unique_ptr<PinnedMemory>> buffers =
      PinnedMemory::create(memory, port, slot_offset(config, config.num_ranks, 0));
  if (!buffers) return buffers.status();
  takeoff->buffers_ = std::move(*buffers);
  return takeoff;
}

void Takeoff::connect(uint32_t peer, const RemoteMemory& slots) {
  Lane& lane = lanes_[peer];
  lane.slots_of_peer = slots;
  lane.slots.resize(config_.slots);
  for (uint32_t i = config_.slots; i-- > 0;) lane.free.push_back(i);
}

void Takeoff::begin(const CheckedWrite& checked) {
  if (free_.empty()) free_.push_back(&pool_.emplace_back());
  Pending* const write = free_.back();
  free_.pop_back();
  const uint32_t peer = checked.write.peer;
  Lane& lane = lanes_[peer];
  const uint64_t chunks = (checked.write.bytes + config_.chunk_bytes - 1) / config_.chunk_bytes;
  *write = {.checked = checked, .number = lane.num_writes++};
  write->pieces = write->pieces_left = static_cast<uint32_t>(std::max<uint64_t>(chunks, 1));
  ++num_writes_;
  if (lane.waiting.empty()) to_fill_.push_back(peer);
  lane.waiting.push_back(write);
}

Status Takeoff::progress() {
  if (!to_fill_.empty()) {
    for (const uint32_t peer : to_fill_) MK_RETURN_IF_ERROR(fill_slots(peer));
    std::erase_if(to_fill_, [this](uint32_t peer) { return lanes_[peer].waiting.empty(); });
  }
  while (!copying_.empty()) {
    const Result<bool> done = channel_->done(copying_.front().mark);
    if (!done) return done.status();
    if (!done.value()) break;
    send(copying_.front());
    copying_.pop_front();
  }
  return Status::ok();
}

Status Takeoff::fill_slots(uint32_t peer) {
  Lane& lane = lanes_[peer];
  if (lane.broken) break_lane(peer);  // what was begun since
  while (!lane.waiting.empty() && !lane.free.empty()) {
    Pending& write = *lane.waiting.front();
    const uint32_t slot_idx = lane.free.back();
    lane.free.pop_back();
    MK_RETURN_IF_ERROR(fill_slot(peer, slot_idx, write));
    if (write.next < write.checked.write.bytes) continue;
    write.waits = false;
    lane.waiting.pop_front();
  }
  return Status::ok();
}

Status Takeoff::fill_slot(uint32_t peer, uint32_t slot_idx, Pending& write) {
  const Write& w = write.checked.write;
  const uint64_t bytes = std::min(config_.chunk_bytes, w.bytes - write.next);
  const PieceHeader header{
      .write = write.number,
      .address = w.kind == Write::Kind::kFlag ? w.flag : w.remote_address + write.next,
      .bytes = bytes,
      .pieces = write.pieces,
      .value = w.value,
      .kind = w.kind};
  char* const slot = buffers_->data() + slot_offset(config_, peer, slot_idx);
  std::memcpy(slot, &header, sizeof header);
  if (bytes > 0) {
    MK_RETURN_IF_ERROR(
        channel_->copy(slot + kHeaderBytes, write.checked.source.data + write.next, bytes));
  }
  const Result<uint64_t> mark = channel_->mark();
  if (!mark) return mark.status();
  write.next += bytes;
  ++write.in_slots;
  lanes_[peer].slots[slot_idx] = {.write = &write, .bytes = kHeaderBytes + bytes};
  copying_.push_back({peer, slot_idx, mark.value()});
  return Status::ok();
}

void Takeoff::send(const Copy& copy) {
  const Lane& lane = lanes_[copy.peer];
  const Notice notice{.rank = config_.rank, .kind = Notice::Kind::kPiece, .slot = copy.slot};
  Transfer* const transfer = wire_.acquire();
  *transfer = {.peer = copy.peer,
               .source = buffers_->data() + slot_offset(config_, copy.peer, copy.slot),
               .descriptor = buffers_->registration().descriptor(),
               .bytes = lane.slots[copy.slot].bytes,
               .address = lane.slots_of_peer.base + slot_offset(config_, config_.rank, copy.slot),
               .key = lane.slots_of_peer.key,
               .has_data = true,
               .data = encode(notice),
               .owner = copy.slot};
  wire_.send(transfer);
}

void Takeoff::handle(const WireEvent& event) {
  const uint32_t peer = event.transfer->peer;
  const uint32_t slot_idx = event.transfer->owner;
  wire_.release(event.transfer);
  if (event.kind == WireEvent::Kind::kFailed) {
    break_lane(peer);
    return return_piece(peer, slot_idx, false);
  }
  Slot& slot = lanes_[peer].slots[slot_idx];
  slot.delivered = true;
  if (slot.credited) return_piece(peer, slot_idx, true);
}

Status Takeoff::handle_notice(const Notice& notice) {
  Lane& lane = lanes_[notice.rank];
  if (notice.slot >= lane.slots.size() || lane.slots[notice.slot].write == nullptr ||
      lane.slots[notice.slot].credited) {
    return {Code::kPeerFailed, "credit from rank " + std::to_string(notice.rank) + " for slot " +
                                   std::to_string(notice.slot) + ", which has no piece"};
  }
  Slot& slot = lane.slots[notice.slot];
  if (notice.kind == Notice::Kind::kRefused) {
    wire_.break_lane(notice.rank, "rank " + std::to_string(notice.rank) +
                                      " has no region any more where a write was to go");
    break_lane(notice.rank);
  }
  // Credit may be seen before the completion of what it answers; the slot needs both.
  slot.credited = true;
  if (slot.delivered) return_piece(notice.rank, notice.slot, !lane.broken);
  return Status::ok();
}

void Takeoff::return_piece(uint32_t peer, uint32_t slot_idx, bool placed) {
  Lane& lane = lanes_[peer];
  Pending& write = *std::exchange(lane.slots[slot_idx], {}).write;
  --write.in_slots;
  if (placed) {
    lane.free.push_back(slot_idx);
    if (--write.pieces_left == 0) end(write, Event::Kind::kCompleted);
  }
  release_if_done(write);
}

void Takeoff::break_lane(uint32_t peer) {
  Lane& lane = lanes_[peer];
  lane.broken = true;
  for (const Slot& slot : lane.slots) {
    if (slot.write != nullptr) end(*slot.write, Event::Kind::kFailed);
  }
  for (Pending* write : std::exchange(lane.waiting, {})) {
    write->waits = false;
    end(*write, Event::Kind::kFailed);
    release_if_done(*write);
  }
}

void Takeoff::end(Pending& write, Event::Kind kind) {
  if (std::exchange(write.ended, true)) return;
  events_.push_back({.kind = kind, .peer = write.checked.write.peer, .id = write.checked.write.id});
  --num_writes_;
}

void Takeoff::release_if_done(Pending& write) {
  if (write.ended && !write.waits && write.in_slots == 0) free_.push_back(&write);
}

Result<bool> Takeoff::settled() {
  if (copying_.empty()) return true;
  return channel_->done(copying_.back().mark);
}

}  // namespace mkernel::libfabric
