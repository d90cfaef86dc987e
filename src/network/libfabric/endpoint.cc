#include "network/libfabric/endpoint.h"

#include <algorithm>
#include <utility>

#include "core/watchdog.h"
#include "network/libfabric/libfabric.h"
#include "network/libfabric/provider.h"

namespace mkernel::libfabric {
namespace {

// A peer that polls confirms what is on its way; from one that does not, nothing comes, however
// long this rank waits.
constexpr uint64_t kQuietLimitNs = 100'000'000;
constexpr uint64_t kDrainLimitNs = 1'000'000'000;
constexpr size_t kDrainEvents = 64;

}  // namespace

LibfabricEndpoint::LibfabricEndpoint(const EndpointConfig& config, SymmetricHeap& heap,
                                     std::unique_ptr<Port> port)
    : config_(config),
      heap_(heap),
      connected_(config.num_ranks),
      port_(std::move(port)),
      regions_(config.num_ranks),
      wire_(std::make_unique<Wire>(*port_, config.num_ranks, config.limit_ns)) {}

Status LibfabricEndpoint::open_path(const LibfabricOptions& options) {
  own_address_ = {.rank = config_.rank,
                  .num_ranks = config_.num_ranks,
                  .provider = port_->info().fabric_attr->prov_name,
                  .name = port_->name()};
  uint64_t max_bytes = port_->info().ep_attr->max_msg_size;
  if (options.max_message_bytes > 0) max_bytes = std::min(max_bytes, options.max_message_bytes);
  auto path = Path::create(*port_, *wire_, heap_,
                           {.rank = config_.rank,
                            .num_ranks = config_.num_ranks,
                            .max_in_flight = config_.max_in_flight,
                            .max_message_bytes = max_bytes});
  if (!path) return path.status();
  path_ = std::move(*path);
  own_address_.flags = path_->flags();
  return Status::ok();
}

Status LibfabricEndpoint::error(Code code, const std::string& message) const {
  return {code, "libfabric endpoint of rank " + std::to_string(config_.rank) + ": " + message};
}

/// Holds the caller to the contract: open, and one thread.
Status LibfabricEndpoint::check_caller() {
  if (closed_) return error(Code::kUnavailable, "it is closed");
  std::thread::id owner;
  if (owner_.compare_exchange_strong(owner, std::this_thread::get_id(),
                                     std::memory_order_relaxed) ||
      owner == std::this_thread::get_id()) {
    return Status::ok();
  }
  return error(Code::kInvalidArgument, "used by a second thread");
}

Status LibfabricEndpoint::connect(std::span<const std::string> address_of_rank) {
  if (address_of_rank.size() != config_.num_ranks) {
    return error(Code::kInvalidArgument, std::to_string(address_of_rank.size()) +
                                             " addresses for " + std::to_string(config_.num_ranks) +
                                             " ranks");
  }
  for (uint32_t rank = 0; rank < config_.num_ranks; ++rank) {
    if (rank == config_.rank || address_of_rank[rank].empty()) continue;
    Result<EndpointAddress> peer = decode_address(address_of_rank[rank]);
    if (!peer) {
      return error(peer.status().code(),
                   "address of rank " + std::to_string(rank) + ": " + peer.status().message());
    }
    MK_RETURN_IF_ERROR(check_peer(*peer, rank));
    MK_RETURN_IF_ERROR(port_->insert(rank, config_.num_ranks, peer->name));
    path_->connect(rank, peer->flags);
    connected_[rank] = true;
  }
  return Status::ok();
}

Status LibfabricEndpoint::check_peer(const EndpointAddress& peer, uint32_t rank) const {
  const auto refuse = [&](const std::string& what, const auto& theirs, const auto& ours) {
    return error(Code::kInvalidArgument, "address of rank " + std::to_string(rank) + ": its " +
                                             what + " is " + theirs + ", not " + ours);
  };
  const auto text = [](uint64_t number) { return std::to_string(number); };
  if (peer.rank != rank) return refuse("rank", text(peer.rank), text(rank));
  if (peer.num_ranks != config_.num_ranks) {
    return refuse("number of ranks", text(peer.num_ranks), text(config_.num_ranks));
  }
  if (peer.provider != own_address_.provider) {
    return refuse("provider", peer.provider, own_address_.provider);
  }
  return Status::ok();
}

Result<std::string> LibfabricEndpoint::export_region(const HeapRegion& region) {
  Registration registration;
  if (region.bytes > 0) {
    Result<Registration> registered = port_->register_memory(region.data, region.bytes);
    if (!registered) return error(registered.status().code(), registered.status().message());
    registration = std::move(*registered);
  }
  const RegionKey key{.rank = config_.rank,
                      .address = region.address,
                      .bytes = region.bytes,
                      .memory = registration.remote};
  if (!regions_.add_own(region, std::move(registration))) {
    return error(
        Code::kInvalidArgument,
        "the region at heap address " + std::to_string(region.address) + " is exported already");
  }
  return encode(key);
}

Status LibfabricEndpoint::import_region(uint32_t peer, uint64_t address, uint64_t bytes,
                                        const std::string& key) {
  const std::string what =
      "key of rank " + std::to_string(peer) + " for heap address " + std::to_string(address) + ": ";
  if (peer >= config_.num_ranks || peer == config_.rank) {
    return error(Code::kInvalidArgument, what + "no such peer");
  }
  const Result<RegionKey> decoded = decode_key(key);
  if (!decoded) return error(decoded.status().code(), what + decoded.status().message());
  const RegionKey& k = decoded.value();
  if (k.rank != peer || k.address != address || k.bytes != bytes) {
    return error(Code::kInvalidArgument, what + "made by rank " + std::to_string(k.rank) + " for " +
                                             std::to_string(k.bytes) + " bytes at " +
                                             std::to_string(k.address) + ", not for " +
                                             std::to_string(bytes) + " bytes here");
  }
  regions_.add_imported(peer, address, bytes, k.memory);
  return Status::ok();
}

Status LibfabricEndpoint::post(std::span<const Write> writes) {
  MK_RETURN_IF_ERROR(check_caller());
  if (writes.size() > config_.max_in_flight - in_flight_) {
    return error(Code::kUnavailable, std::to_string(writes.size()) + " writes beside " +
                                         std::to_string(in_flight_) + " in flight: at most " +
                                         std::to_string(config_.max_in_flight));
  }
  checked_.clear();
  for (const Write& write : writes) {
    const Result<CheckedWrite> checked = check_write(write);
    if (!checked) return checked.status();
    checked_.push_back(checked.value());
  }
  for (const CheckedWrite& write : checked_) path_->begin(write);
  in_flight_ += static_cast<uint32_t>(writes.size());
  return Status::ok();
}

Result<CheckedWrite> LibfabricEndpoint::check_write(const Write& w) const {
  CheckedWrite checked{.write = w, .source = {}, .target = {}};
  if (w.peer >= config_.num_ranks || !connected_[w.peer]) {
    return error(Code::kInvalidArgument, "no route to rank " + std::to_string(w.peer));
  }
  if (w.kind == Write::Kind::kFlag) {
    checked.write.bytes = 0;
    if (w.flag < kMaxFlags) return checked;
    return error(Code::kInvalidArgument, "flag " + std::to_string(w.flag) + " of rank " +
                                             std::to_string(w.peer) + ": below " +
                                             std::to_string(kMaxFlags));
  }
  if (w.bytes == 0) return checked;
  const std::optional<Source> source = regions_.source(w.local_address, w.bytes);
  if (!source) return out_of_bounds(w, false);
  const std::optional<Target> target = regions_.target(w.peer, w.remote_address, w.bytes);
  if (!target) return out_of_bounds(w, true);
  checked.source = *source;
  checked.target = *target;
  return checked;
}

Status LibfabricEndpoint::out_of_bounds(const Write& w, bool at_peer) const {
  return error(Code::kInvalidArgument,
               std::to_string(w.bytes) + " bytes from address " + std::to_string(w.local_address) +
                   " to address " + std::to_string(w.remote_address) + " of rank " +
                   std::to_string(w.peer) + ": outside of every region that " +
                   (at_peer ? "it has" : "this rank has") + " made known");
}

Result<size_t> LibfabricEndpoint::poll(std::span<Event> events) {
  MK_RETURN_IF_ERROR(check_caller());
  MK_RETURN_IF_ERROR(make_progress(events.size()));
  const size_t count = std::min(events.size(), path_->events.size());
  for (size_t i = 0; i < count; ++i) {
    events[i] = path_->events.front();
    path_->events.pop_front();
    if (events[i].kind != Event::Kind::kArrived) --in_flight_;
  }
  return count;
}

Status LibfabricEndpoint::make_progress(size_t limit) {
  wire_events_.clear();
  // What was not fetched yet holds up reading, so that a caller with little room is not swamped.
  const size_t held = std::min(limit, path_->events.size());
  const Status polled = wire_->poll(limit - held, wire_events_);
  for (const WireEvent& event : wire_events_) path_->handle(event);
  return polled ? polled : error(polled.code(), polled.message());
}

Status LibfabricEndpoint::close() {
  if (closed_) return Status::ok();
  closed_ = true;
  in_flight_ = 0;
  if (!path_) return Status::ok();
  // Errors do not matter any more: what they are about is destroyed below.
  (void)drain();
  // Registrations first, because a provider may want them gone before its endpoint. With that the
  // network touches nothing any more.
  regions_.forget_all();
  path_->unregister();
  port_->shut();
  path_.reset();  // it holds memory of the device, which may go before this object
  return Status::ok();
}

Status LibfabricEndpoint::drain() {
  const uint64_t start_ns = Watchdog::now_ns();
  const uint64_t limit_ns = std::min(config_.limit_ns, kDrainLimitNs);
  uint64_t event_ns = start_ns;
  while (!(path_->idle() && wire_->idle())) {
    path_->events.clear();
    MK_RETURN_IF_ERROR(make_progress(kDrainEvents));
    const uint64_t now_ns = Watchdog::now_ns();
    if (!wire_events_.empty()) event_ns = now_ns;
    if (now_ns - start_ns > limit_ns || now_ns - event_ns > kQuietLimitNs) break;
    std::this_thread::yield();
  }
  return Status::ok();
}

}  // namespace mkernel::libfabric
