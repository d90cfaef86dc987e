#include "network/libfabric/path.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include "core/flag_word.h"

namespace mkernel::libfabric {
namespace {

constexpr uint32_t kMaxParts =
    4;  // of one write at a time: keeps a link busy, leaves room to others

}  // namespace

Path::Path(Wire& wire, const Config& config, bool data_names_rank)
    : wire_(wire),
      config_(config),
      data_names_rank_(data_names_rank),
      flags_of_peer_(config.num_ranks),
      states_(config.max_in_flight) {
  for (uint32_t i = 0; i < config.max_in_flight; ++i) free_.push_back(i);
}

Result<std::unique_ptr<Path>> Path::create(Port& port, Wire& wire, SymmetricHeap& heap,
                                           const Config& config) {
  const bool data_names_rank = port.info().domain_attr->cq_data_size >= sizeof(uint64_t);
  std::unique_ptr<Path> path(new Path(wire, config, data_names_rank));
  Result<Registration> flags = port.register_memory(heap.flag_region(), kFlagRegionBytes);
  if (!flags) return flags.status();
  path->flags_ = std::move(*flags);
  Result<std::unique_ptr<PinnedMemory>> values =
      PinnedMemory::create(heap.memory(), port, config.max_in_flight * sizeof(uint32_t));
  if (!values) return values.status();
  path->flag_values_ = std::move(*values);
  return path;
}

void Path::begin(const CheckedWrite& write) {
  const uint32_t state_idx = free_.back();
  free_.pop_back();
  const bool signals = write.write.kind == Write::Kind::kDataImmediate;
  states_[state_idx] = {.checked = write, .signals = signals};
  if (write.write.kind == Write::Kind::kFlag) return send_flag(state_idx);
  advance(state_idx);
}

void Path::advance(uint32_t state_idx) {
  State& state = states_[state_idx];
  const Write& write = state.checked.write;
  while (!state.failed && state.next < write.bytes && state.parts < kMaxParts) {
    send_data(state_idx);
  }
  if (state.parts > 0) return;
  if (!state.failed && state.signals) {
    Transfer* const transfer = new_part(state_idx, 0);
    carry_immediate(*transfer, state);
    return wire_.send(transfer);
  }
  events.push_back({.kind = state.failed ? Event::Kind::kFailed : Event::Kind::kCompleted,
                    .peer = write.peer,
                    .id = write.id});
  free_.push_back(state_idx);
}

/// A transfer of this write; where it names no memory, it goes to the peer's flags with no bytes.
Transfer* Path::new_part(uint32_t state_idx, uint64_t bytes) {
  State& state = states_[state_idx];
  const RemoteMemory& flags = flags_of_peer_[state.checked.write.peer];
  Transfer* const transfer = wire_.acquire();
  *transfer = {.peer = state.checked.write.peer,
               .source = flag_values_->data(),
               .descriptor = flag_values_->registration().descriptor(),
               .bytes = bytes,
               .address = flags.base,
               .key = flags.key,
               .owner = state_idx};
  ++state.parts;
  return transfer;
}

void Path::send_data(uint32_t state_idx) {
  State& state = states_[state_idx];
  const uint64_t bytes =
      std::min(config_.max_message_bytes, state.checked.write.bytes - state.next);
  Transfer* const transfer = new_part(state_idx, bytes);
  transfer->source = state.checked.source.data + state.next;
  transfer->descriptor = state.checked.source.descriptor;
  transfer->address = state.checked.target.address + state.next;
  transfer->key = state.checked.target.key;
  state.next += bytes;
  if (bytes == state.checked.write.bytes && state.signals) carry_immediate(*transfer, state);
  wire_.send(transfer);
}

void Path::send_flag(uint32_t state_idx) {
  const Write& write = states_[state_idx].checked.write;
  char* const value = flag_values_->data() + state_idx * sizeof(uint32_t);
  std::memcpy(value, &write.value, sizeof write.value);
  Transfer* const transfer = new_part(state_idx, sizeof(uint32_t));
  transfer->source = value;
  transfer->address += uint64_t{write.flag} * kFlagStride * sizeof(uint32_t);
  wire_.send(transfer);
}

void Path::carry_immediate(Transfer& transfer, State& state) const {
  const uint64_t sender = data_names_rank_ ? uint64_t{config_.rank} << 32 : 0;
  transfer.has_data = true;
  transfer.data = sender | state.checked.write.value;
  state.signals = false;
}

void Path::handle(const WireEvent& event) {
  if (event.kind == WireEvent::Kind::kData) {
    events.push_back(
        {.kind = Event::Kind::kArrived,
         .peer = data_names_rank_ ? static_cast<uint32_t>(event.data >> 32) : kUnnamedPeer,
         .value = static_cast<uint32_t>(event.data)});
    return;
  }
  const uint32_t state_idx = event.transfer->owner;
  wire_.release(event.transfer);
  State& state = states_[state_idx];
  --state.parts;
  state.failed |= event.kind == WireEvent::Kind::kFailed;
  advance(state_idx);
}

}  // namespace mkernel::libfabric
