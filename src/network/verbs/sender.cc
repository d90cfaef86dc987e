#include "network/verbs/sender.h"

#include <algorithm>
#include <utility>

#include "core/maths.h"

namespace mkernel::verbs {
namespace {

constexpr uint64_t kPartAlignment = 256;  // so that every part begins with a line

}  // namespace

Sender::Sender(const SenderConfig& config, uint32_t num_peers)
    : config_(config), peers_(num_peers), flights_(config.max_in_flight) {
  for (uint32_t i = config.max_in_flight; i-- > 0;) free_.push_back(i);
}

void Sender::set_nowhere(uint32_t peer, const Location& source, const Location& target) {
  peers_[peer].no_source = source;
  peers_[peer].no_target = target;
}

void Sender::write(const Write& w, const Location& source, const Location& target) {
  ++num_in_flight_;
  if (peers_[w.peer].is_broken) {
    events_.push_back({.kind = Event::Kind::kFailed, .peer = w.peer, .id = w.id});
    return;
  }
  const uint32_t flight = free_.back();
  free_.pop_back();
  flights_[flight] = {.id = w.id, .peer = w.peer};
  if (w.kind == Write::Kind::kFlag) {
    write_flag(flight, w, target);
  } else {
    write_data(flight, w, source, target);
  }
}

void Sender::write_data(uint32_t flight_idx, const Write& w, const Location& source,
                        const Location& target) {
  Peer& peer = peers_[w.peer];
  const uint64_t num_routes = peer.routes.size();
  const uint64_t wanted = std::clamp<uint64_t>(w.bytes / config_.split_bytes, 1, num_routes);
  const uint64_t part_bytes =
      std::min(wanted == 1 ? std::max<uint64_t>(w.bytes, 1)
                           : round_up(ceil_div(w.bytes, wanted), kPartAlignment),
               config_.max_write_bytes);
  const uint64_t num_parts = std::max<uint64_t>(ceil_div(w.bytes, part_bytes), 1);
  Flight& flight = flights_[flight_idx];
  flight.num_parts = static_cast<uint32_t>(num_parts);

  std::optional<uint32_t> immediate;
  if (w.kind == Write::Kind::kDataImmediate) immediate = w.value;
  const bool comes_with_last = num_parts == 1 || (config_.in_order && num_routes == 1);
  if (!comes_with_last) flight.immediate = immediate;
  for (uint64_t i = 0; i < num_parts; ++i) {
    const uint64_t offset = i * part_bytes;
    Part part{.offset = offset, .bytes = std::min(part_bytes, w.bytes - offset)};
    if (comes_with_last && i + 1 == num_parts) part.immediate = immediate;
    add(flight_idx, peer.next_route, part, source, target);
    peer.next_route = (peer.next_route + 1) % static_cast<uint32_t>(num_routes);
  }
}

void Sender::write_flag(uint32_t flight, const Write& w, const Location& target) {
  flights_[flight].num_parts = 1;
  Peer& peer = peers_[w.peer];
  if (!config_.in_order || peer.routes.size() == 1) {
    return add(flight, peer.next_route, {.flag = w.value}, {}, target);
  }
  HeldFlag flag{.flight = flight, .value = w.value, .target = target};
  for (const Route& route : peer.routes) flag.marks.push_back(route.num_added);
  peer.held.push_back(std::move(flag));
  release_flags(peer);
}

/// Posts the held flags that the order allows, oldest first.
void Sender::release_flags(Peer& peer) {
  while (!peer.held.empty()) {
    const HeldFlag& flag = peer.held.front();
    uint32_t route_idx = peer.next_route;
    uint32_t num_open = 0;
    for (uint32_t i = 0; i < peer.routes.size(); ++i) {
      if (peer.routes[i].num_complete >= flag.marks[i]) continue;
      route_idx = i;
      ++num_open;
    }
    if (num_open > 1) return;
    add(flag.flight, route_idx, {.flag = flag.value}, {}, flag.target);
    peer.held.pop_front();
    // The flags behind it come after it, too.
    for (HeldFlag& later : peer.held) later.marks[route_idx] = peer.routes[route_idx].num_added;
  }
}

void Sender::add(uint32_t flight, uint32_t route_idx, const Part& part, const Location& source,
                 const Location& target) {
  const uint32_t peer = flights_[flight].peer;
  Route& route = peers_[peer].routes[route_idx];
  Lane& lane = *lanes_[route.lane];
  const bool is_nowhere = part.bytes == 0 && !part.flag;
  const Location& from = is_nowhere ? peers_[peer].no_source : source;
  const Location& to = is_nowhere ? peers_[peer].no_target : target;
  Request request{.wr = {.local_address = from.address + part.offset,
                         .remote_address = to.address + part.offset,
                         .bytes = static_cast<uint32_t>(part.bytes),
                         .lkey = from.keys[lane.rail_idx()],
                         .rkey = to.keys[lane.rail_idx()],
                         .immediate = part.immediate,
                         .handle = route.handle,
                         .remote_number = route.remote_number,
                         .remote_qkey = route.remote_qkey},
                  .flight = flight,
                  .peer = peer,
                  .route = route_idx,
                  .flag = part.flag};
  if (!lane.has_pending()) waiting_.push_back(route.lane);
  lane.add(request);
  ++route.num_added;
}

Status Sender::flush() {
  for (const uint32_t lane : waiting_) MK_RETURN_IF_ERROR(lanes_[lane]->flush());
  std::erase_if(waiting_, [this](uint32_t lane) { return !lanes_[lane]->has_pending(); });
  return Status::ok();
}

void Sender::complete(const Completion& completion) {
  const uint32_t lane = Lane::index_of(completion.id);
  if (lane >= lanes_.size()) return;
  ended_.clear();
  lanes_[lane]->complete(completion.id, ended_);
  const bool succeeded = completion.outcome == Completion::Outcome::kSuccess;
  for (size_t i = 0; i < ended_.size(); ++i) {
    const Request& request = ended_[i];
    const bool request_succeeded = succeeded || i + 1 < ended_.size();
    ++peers_[request.peer].routes[request.route].num_complete;
    if (!request_succeeded && failure_.empty()) {
      failure_ = "write of " + std::to_string(request.wr.bytes) + " bytes to rank " +
                 std::to_string(request.peer) + ": " + completion.error;
    }
    if (!request_succeeded) break_peer(request.peer);
    end_part(request.flight, request_succeeded);
    release_flags(peers_[request.peer]);
  }
}

void Sender::end_part(uint32_t flight_idx, bool succeeded) {
  Flight& flight = flights_[flight_idx];
  flight.failed |= !succeeded;
  if (--flight.num_parts > 0) return;
  if (flight.immediate && !flight.failed && !peers_[flight.peer].is_broken) {
    flight.num_parts = 1;
    const Part part{.immediate = std::exchange(flight.immediate, std::nullopt)};
    add(flight_idx, peers_[flight.peer].next_route, part, {}, {});
    return;
  }
  const bool failed = flight.failed || flight.immediate;
  events_.push_back({.kind = failed ? Event::Kind::kFailed : Event::Kind::kCompleted,
                     .peer = flight.peer,
                     .id = flight.id});
  free_.push_back(flight_idx);
}

void Sender::break_peer(uint32_t peer_idx) {
  Peer& peer = peers_[peer_idx];
  if (std::exchange(peer.is_broken, true)) return;
  for (const Route& route : peer.routes) {
    for (const Request& request : lanes_[route.lane]->take_pending(peer_idx)) {
      end_part(request.flight, false);
    }
  }
  for (const HeldFlag& flag : std::exchange(peer.held, {})) end_part(flag.flight, false);
}

void Sender::arrived(uint32_t peer, uint32_t immediate) {
  events_.push_back({.kind = Event::Kind::kArrived, .peer = peer, .value = immediate});
}

Event Sender::take_event() {
  const Event event = events_.front();
  events_.pop_front();
  if (event.kind != Event::Kind::kArrived) --num_in_flight_;
  return event;
}

uint32_t Sender::num_posted() const {
  uint32_t count = 0;
  for (const auto& lane : lanes_) count += lane->num_posted();
  return count;
}

}  // namespace mkernel::verbs
