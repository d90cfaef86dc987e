#include "network/verbs/endpoint.h"

#include <algorithm>
#include <array>
#include <thread>
#include <utility>

#include "core/watchdog.h"

namespace mkernel::verbs {

VerbsEndpoint::~VerbsEndpoint() { (void)close(); }

LinkTraits VerbsEndpoint::traits() const {
  return {.in_order = is_connected_service_, .immediate_bits = 32, .max_in_flight = depth_};
}

Status VerbsEndpoint::error(Code code, const std::string& message) const {
  return {code, std::string(is_connected_service_ ? "verbs" : "efa") + " endpoint of rank " +
                    std::to_string(config_.rank) + ": " + message};
}

Status VerbsEndpoint::check_caller() {
  if (is_closed_) return error(Code::kUnavailable, "it is closed");
  if (!caller_.is_first()) return error(Code::kInvalidArgument, "used by a second thread");
  return Status::ok();
}

// --- Regions ---

Result<std::string> VerbsEndpoint::export_region(const HeapRegion& region) {
  const std::lock_guard lock(registering_);
  if (is_closed_) return error(Code::kUnavailable, "it is closed");
  // Peers may hold the keys of an earlier call, so these stay.
  if (const std::optional<RegionKey> known = regions_.key_of_own(region.address)) {
    return encode(*known);
  }
  Regions::Registrations registrations;
  for (const Rail& rail : rails_) {
    auto registered = register_by(config_.path, *rail.device, config_.heap->memory(), region.data,
                                  std::max<uint64_t>(region.bytes, 1),
                                  {.local_write = true,
                                   .remote_write = true,
                                   .relaxed_ordering = config_.settings.relaxed_ordering});
    if (!registered) return error(registered.status().code(), registered.status().message());
    registrations.push_back(std::move(*registered));
  }
  regions_.add_own(region, std::move(registrations));
  return encode(*regions_.key_of_own(region.address));
}

Status VerbsEndpoint::import_region(uint32_t peer, uint64_t address, uint64_t bytes,
                                    const std::string& key_bytes) {
  if (peer >= config_.num_ranks || peer == config_.rank) {
    return error(Code::kInvalidArgument, "no region of rank " + std::to_string(peer));
  }
  Result<RegionKey> key = decode_key(key_bytes);
  if (!key) return error(key.status().code(), key.status().message());
  if (key->rkeys.size() != address_.rails.size()) {
    return error(Code::kInvalidArgument, "a region of rank " + std::to_string(peer) + " has " +
                                             std::to_string(key->rkeys.size()) +
                                             " keys: this rank has " +
                                             std::to_string(address_.rails.size()) + " devices");
  }
  regions_.add_peer(peer, address, bytes, *key);
  return Status::ok();
}

void VerbsEndpoint::forget_region(uint64_t address) {
  const std::lock_guard lock(registering_);
  regions_.forget(address);
}

// --- Posting ---

Result<Location> VerbsEndpoint::flag_of(uint32_t peer, uint32_t flag) const {
  if (flag >= kMaxFlags) {
    return error(Code::kInvalidArgument, "flag " + std::to_string(flag) + " of rank " +
                                             std::to_string(peer) + ": below " +
                                             std::to_string(kMaxFlags));
  }
  const EndpointAddress& remote = peers_[peer];
  Location location{.address = remote.flags_address + uint64_t{flag} * kFlagStride * sizeof(flag)};
  for (size_t i = 0; i < remote.rails.size(); ++i) location.keys[i] = remote.rails[i].flags_rkey;
  return location;
}

Result<VerbsEndpoint::Places> VerbsEndpoint::places_of(const Write& w) const {
  if (w.peer >= config_.num_ranks || sender_.routes(w.peer).empty()) {
    return error(Code::kInvalidArgument, "no route to rank " + std::to_string(w.peer));
  }
  if (w.kind == Write::Kind::kFlag) {
    Result<Location> flag = flag_of(w.peer, w.flag);
    if (!flag) return flag.status();
    return Places{{}, *flag};
  }
  if (w.bytes == 0) return Places{};
  const std::optional<Location> source = regions_.own(w.local_address, w.bytes);
  const std::optional<Location> target = regions_.of_peer(w.peer, w.remote_address, w.bytes);
  if (source && target) return Places{*source, *target};
  return error(Code::kInvalidArgument,
               std::to_string(w.bytes) + " bytes from address " + std::to_string(w.local_address) +
                   " to address " + std::to_string(w.remote_address) + " of rank " +
                   std::to_string(w.peer) + ": outside of the regions that " +
                   (source ? "were imported from the peer" : "this rank has exported"));
}

Status VerbsEndpoint::post(std::span<const Write> writes) {
  MK_RETURN_IF_ERROR(check_caller());
  if (writes.size() > depth_ - sender_.num_in_flight()) {
    return error(Code::kUnavailable, std::to_string(writes.size()) + " writes beside " +
                                         std::to_string(sender_.num_in_flight()) +
                                         " in flight: at most " + std::to_string(depth_));
  }
  places_.clear();
  for (const Write& w : writes) {
    Result<Places> places = places_of(w);
    if (!places) return places.status();
    places_.push_back(*places);
  }
  for (size_t i = 0; i < writes.size(); ++i) {
    sender_.write(writes[i], places_[i].source, places_[i].target);
  }
  return sender_.flush();
}

// --- Polling ---

Result<size_t> VerbsEndpoint::poll(std::span<Event> events) {
  MK_RETURN_IF_ERROR(check_caller());
  // Only when asked for more than is known, so that arrivals do not pile up here.
  if (sender_.num_events() < events.size()) MK_RETURN_IF_ERROR(poll_rails());
  size_t count = 0;
  while (count < events.size() && sender_.num_events() > 0) events[count++] = sender_.take_event();
  return count;
}

Status VerbsEndpoint::poll_rails() {
  for (uint32_t i = 0; i < rails_.size(); ++i) {
    Result<size_t> num_sends = poll_sends(rails_[i]);
    if (!num_sends) return num_sends.status();
    Result<size_t> num_receives = poll_receives(rails_[i], i);
    if (!num_receives) return num_receives.status();
  }
  return sender_.flush();
}

Result<size_t> VerbsEndpoint::poll_sends(Rail& rail) {
  Result<size_t> count = rail.sends->poll(completions_);
  if (!count) return error(count.status().code(), count.status().message());
  for (size_t i = 0; i < *count; ++i) sender_.complete(completions_[i]);
  return count;
}

Result<size_t> VerbsEndpoint::poll_receives(Rail& rail, uint32_t rail_idx) {
  Result<size_t> count = rail.receives->poll(completions_);
  if (!count) return error(count.status().code(), count.status().message());
  for (size_t i = 0; i < *count; ++i) MK_RETURN_IF_ERROR(receive(completions_[i], rail_idx));
  for (size_t i = 0; i < *count; ++i) {
    const auto lane = static_cast<uint32_t>(completions_[i].id);
    const uint32_t num_owed = std::exchange(receivers_[lane].num_owed, 0);
    if (num_owed > 0) MK_RETURN_IF_ERROR(post_receives(lane, num_owed));
  }
  return count;
}

Status VerbsEndpoint::receive(const Completion& completion, uint32_t rail_idx) {
  if (completion.outcome == Completion::Outcome::kFlushed) return Status::ok();
  if (completion.outcome == Completion::Outcome::kError) {
    return error(Code::kPeerFailed,
                 "receiving over " + rails_[rail_idx].name + ": " + completion.error);
  }
  Receiver& receiver = receivers_[completion.id];
  ++receiver.num_owed;
  if (!completion.immediate) return Status::ok();
  if (is_connected_service_) {
    sender_.arrived(receiver.peer, *completion.immediate);
    return Status::ok();
  }
  // SRD takes from anybody who knows number and key. Whoever is no peer of this endpoint was one of
  // an earlier endpoint, and its immediate is late.
  const auto it =
      peer_of_source_.find({rail_idx, completion.source_handle, completion.source_number});
  if (it != peer_of_source_.end()) sender_.arrived(it->second, *completion.immediate);
  return Status::ok();
}

Status VerbsEndpoint::post_receives(uint32_t lane, uint32_t count) {
  const Rail& rail = rails_[receivers_[lane].rail];
  std::array<ReceiveRequest, 16> requests;
  requests.fill({.id = lane,
                 .address = reinterpret_cast<uint64_t>(&rail.words.back()),
                 .bytes = sizeof(uint32_t),
                 .lkey = rail.words_region->lkey()});
  while (count > 0) {
    const uint32_t n = std::min<uint32_t>(count, requests.size());
    const Status posted = sender_.lanes()[lane]->pair().post_receive({requests.data(), n});
    if (!posted) return error(posted.code(), posted.message());
    count -= n;
  }
  return Status::ok();
}

// --- Closing ---

/// Waits until what was posted is complete. What was not, is dropped.
Status VerbsEndpoint::drain() {
  const uint64_t start_ns = Watchdog::now_ns();
  while (sender_.num_posted() > 0 && Watchdog::now_ns() - start_ns <= config_.limit_ns) {
    size_t num_ended = 0;
    for (Rail& rail : rails_) {
      Result<size_t> count = poll_sends(rail);
      if (!count) return count.status();
      num_ended += *count;
    }
    if (num_ended == 0) std::this_thread::yield();
  }
  return Status::ok();
}

Status VerbsEndpoint::close() {
  const std::lock_guard lock(registering_);
  if (std::exchange(is_closed_, true)) return Status::ok();
  Status drained = drain();
  // Without queue pairs nothing is sent any more, and what a peer still sends is refused.
  sender_.lanes().clear();
  handles_.clear();
  regions_.clear();
  rails_.clear();
  return drained;
}

}  // namespace mkernel::verbs
