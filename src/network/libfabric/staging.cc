#include "network/libfabric/staging.h"

#include <string>
#include <utility>

namespace mkernel::libfabric {

Result<std::unique_ptr<StagedPath>> StagedPath::create(Port& port, Wire& wire, SymmetricHeap& heap,
                                                       const StagingConfig& config) {
  std::unique_ptr<StagedPath> path(new StagedPath(wire, config));
  auto takeoff = Takeoff::create(wire, port, heap.memory(), path->events, config);
  if (!takeoff) return takeoff.status();
  path->takeoff_ = std::move(*takeoff);
  auto landing = Landing::create(wire, port, heap, path->events, config);
  if (!landing) return landing.status();
  path->landing_ = std::move(*landing);
  return path;
}

void StagedPath::describe(EndpointAddress& address) const {
  address.landing = landing_->slots();
  address.staging_slots = config_.slots;
  address.staging_chunk_bytes = config_.chunk_bytes;
}

Status StagedPath::connect(const EndpointAddress& peer) {
  takeoff_->connect(peer.rank, peer.landing);
  landing_->connect(peer.rank, peer.landing);
  return Status::ok();
}

Status StagedPath::handle(const WireEvent& event) {
  if (event.kind == WireEvent::Kind::kData) {
    const Notice notice = decode_notice(static_cast<uint32_t>(event.data));
    if (notice.rank >= config_.num_ranks) {
      return {Code::kPeerFailed, "a piece of rank " + std::to_string(notice.rank) + ": there are " +
                                     std::to_string(config_.num_ranks)};
    }
    return notice.kind == Notice::Kind::kPiece ? landing_->handle_notice(notice)
                                               : takeoff_->handle_notice(notice);
  }
  if (event.transfer->owner != kCreditOwner) {
    takeoff_->handle(event);
    return Status::ok();
  }
  if (event.kind == WireEvent::Kind::kFailed) takeoff_->break_lane(event.transfer->peer);
  wire_.release(event.transfer);
  return Status::ok();
}

Status StagedPath::progress() {
  MK_RETURN_IF_ERROR(landing_->progress());  // credit first: a peer may be waiting for it
  return takeoff_->progress();
}

void StagedPath::unregister() {
  takeoff_->unregister();
  landing_->unregister();
}

Result<bool> StagedPath::settled() {
  Result<bool> up = landing_->settled();
  if (!up || !up.value()) return up;
  return takeoff_->settled();
}

}  // namespace mkernel::libfabric
