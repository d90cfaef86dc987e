#include "network/libfabric/landing.h"

#include <cstring>
#include <string>
#include <utility>

#include "core/flag_word.h"

namespace mkernel::libfabric {

Landing::Landing(Wire& wire, SymmetricHeap& heap, std::deque<Event>& events,
                 const StagingConfig& config)
    : wire_(wire), heap_(heap), events_(events), config_(config), lanes_(config.num_ranks) {}

Result<std::unique_ptr<Landing>> Landing::create(Wire& wire, Port& port, SymmetricHeap& heap,
                                                 std::deque<Event>& events,
                                                 const StagingConfig& config) {
  std::unique_ptr<Landing> landing(new Landing(wire, heap, events, config));
  Result<std::unique_ptr<CopyChannel>> channel = heap.memory().create_channel();
  if (!channel) return channel.status();
  landing->channel_ = std::move(*channel);
  Result<std::unique_ptr<PinnedMemory>> buffers =
      PinnedMemory::create(heap.memory(), port, slot_offset(config, config.num_ranks, 0));
  if (!buffers) return buffers.status();
  landing->buffers_ = std::move(*buffers);
  return landing;
}

Status Landing::handle_notice(const Notice& notice) {
  if (notice.slot >= config_.slots || !lanes_[notice.rank].peer_memory) {
    return {Code::kPeerFailed, "a piece in slot " + std::to_string(notice.slot) + " of rank " +
                                   std::to_string(notice.rank) + ": there is no such link"};
  }
  const char* const slot = buffers_->data() + slot_offset(config_, notice.rank, notice.slot);
  PieceHeader header;
  std::memcpy(&header, slot, sizeof header);
  const Result<bool> begun = copy_up(header, slot + kHeaderBytes);
  if (!begun) return begun.status();
  if (!begun.value()) {
    give_credit(notice, Notice::Kind::kRefused);
    return Status::ok();
  }
  const Result<uint64_t> mark = channel_->mark();
  if (!mark) return mark.status();
  copying_.push_back({notice, header, mark.value()});
  return Status::ok();
}

Result<bool> Landing::copy_up(const PieceHeader& header, const char* bytes) {
  if (header.kind == Write::Kind::kFlag) {
    if (header.address >= kMaxFlags) return false;
    uint32_t* const flag = heap_.flag(static_cast<uint32_t>(header.address));
    MK_RETURN_IF_ERROR(channel_->store_flag(flag, header.value));
    return true;
  }
  if (header.bytes == 0) return true;
  if (header.bytes > config_.chunk_bytes) return false;
  char* const target = heap_.resolve(header.address, header.bytes);
  if (target == nullptr) return false;
  MK_RETURN_IF_ERROR(channel_->copy(target, bytes, header.bytes));
  return true;
}

Status Landing::progress() {
  while (!copying_.empty()) {
    const Result<bool> done = channel_->done(copying_.front().mark);
    if (!done) return done.status();
    if (!done.value()) break;
    land(copying_.front());
    copying_.pop_front();
  }
  return Status::ok();
}

void Landing::land(const Copy& copy) {
  const PieceHeader& header = copy.header;
  give_credit(copy.notice, Notice::Kind::kCredit);
  if (header.pieces > 1) {
    auto& pieces_left = lanes_[copy.notice.rank].pieces_left;
    const auto it = pieces_left.try_emplace(header.write, header.pieces).first;
    if (--it->second > 0) return;
    pieces_left.erase(it);
  }
  if (header.kind != Write::Kind::kDataImmediate) return;
  events_.push_back(
      {.kind = Event::Kind::kArrived, .peer = copy.notice.rank, .value = header.value});
}

void Landing::give_credit(const Notice& piece, Notice::Kind kind) {
  const RemoteMemory memory = lanes_[piece.rank].peer_memory.value_or(RemoteMemory{});
  Transfer* const transfer = wire_.acquire();
  *transfer = {.peer = piece.rank,
               .source = buffers_->data(),
               .descriptor = buffers_->registration().descriptor(),
               .address = memory.base,
               .key = memory.key,
               .has_data = true,
               .data = encode(Notice{.rank = config_.rank, .kind = kind, .slot = piece.slot}),
               .owner = kCreditOwner};
  wire_.send(transfer);
}

Result<bool> Landing::settled() {
  if (copying_.empty()) return true;
  return channel_->done(copying_.back().mark);
}

}  // namespace mkernel::libfabric
