// An endpoint's queue pairs, and the connections between ranks.
#include <algorithm>
#include <random>
#include <utility>

#include "network/verbs/endpoint.h"

namespace mkernel::verbs {
namespace {

constexpr uint32_t kDefaultDepth = 256;
constexpr uint32_t kInlineBytes = sizeof(uint32_t);  // a flag
constexpr uint32_t kMaxPacketNumber = (1u << 24) - 1;

/// Writes in flight: what was asked for, or as many as any device can hold.
Result<uint32_t> depth_of(const Settings& settings, const std::vector<Rail>& rails) {
  uint32_t depth = settings.depth.value_or(kDefaultDepth);
  for (const Rail& rail : rails) {
    const uint32_t most = std::min(rail.limits.max_sends, rail.limits.max_receives);
    if (settings.depth && depth > most) {
      return Status(Code::kInvalidArgument, "verbs: depth = " + std::to_string(depth) +
                                                ": device " + rail.name + " holds " +
                                                std::to_string(most));
    }
    depth = std::min(depth, most);
  }
  return depth;
}

/// Receives of a queue pair. All peers meet in one of SRD, and a sender whose immediate finds none
/// has to come again; so it gets as many as are of use.
uint32_t receives_of(const EndpointConfig& config, const std::vector<Rail>& rails, uint32_t depth) {
  if (config.settings.service == Service::kConnected) return depth;
  uint64_t receives = uint64_t{depth} * std::max(config.num_ranks, 2u);
  for (const Rail& rail : rails) {
    receives = std::min({receives, uint64_t{rail.limits.max_receives},
                         uint64_t{rail.limits.max_cqe / config.settings.qps_per_peer}});
  }
  return static_cast<uint32_t>(receives);
}

uint64_t least_max_write(const std::vector<Rail>& rails) {
  uint64_t least = UINT32_MAX;
  for (const Rail& rail : rails) least = std::min(least, rail.max_write_bytes);
  return least;
}

}  // namespace

VerbsEndpoint::VerbsEndpoint(const EndpointConfig& config, std::shared_ptr<Api> api,
                             std::vector<Rail> rails, uint32_t depth)
    : config_(config),
      is_connected_service_(config.settings.service == Service::kConnected),
      depth_(depth),
      num_receives_(receives_of(config, rails, depth)),
      api_(std::move(api)),
      rails_(std::move(rails)),
      peers_(config.num_ranks),
      sender_({.in_order = is_connected_service_,
               .split_bytes = config.settings.split_bytes,
               .max_write_bytes = least_max_write(rails_),
               .max_in_flight = depth},
              config.num_ranks),
      completions_(32) {}

Result<std::unique_ptr<Endpoint>> VerbsEndpoint::create(const EndpointConfig& config,
                                                        std::shared_ptr<Api> api,
                                                        std::vector<Rail> rails) {
  Result<uint32_t> depth = depth_of(config.settings, rails);
  if (!depth) return depth.status();
  std::unique_ptr<VerbsEndpoint> endpoint(
      new VerbsEndpoint(config, std::move(api), std::move(rails), *depth));
  MK_RETURN_IF_ERROR(endpoint->create_lanes());
  return std::unique_ptr<Endpoint>(std::move(endpoint));
}

size_t VerbsEndpoint::lane_idx(uint32_t peer, uint32_t rail, uint32_t queue) const {
  size_t peer_idx = 0;  // of SRD's queue pairs each reaches all peers; RC has none to itself
  if (is_connected_service_) peer_idx = peer < config_.rank ? peer : peer - 1;
  return (peer_idx * rails_.size() + rail) * config_.settings.qps_per_peer + queue;
}

Status VerbsEndpoint::create_lanes() {
  const Settings& settings = config_.settings;
  const uint32_t num_peers = is_connected_service_ ? config_.num_ranks - 1 : 1;
  const uint32_t lanes_per_rail = num_peers * settings.qps_per_peer;
  // Of its own for each endpoint, so that what was meant for an earlier one is not taken.
  std::random_device random;
  address_ = {.service = settings.service,
              .rank = config_.rank,
              .num_ranks = config_.num_ranks,
              .qps_per_peer = settings.qps_per_peer,
              .sequence = random() & kMaxPacketNumber,
              .qkey = random() & INT32_MAX,  // the upper half is privileged
              .flags_address = reinterpret_cast<uint64_t>(config_.heap->flag_region()),
              .rails = {},
              .qp_numbers = {}};
  for (Rail& rail : rails_) {
    if (lanes_per_rail > rail.limits.max_queue_pairs) {
      return error(Code::kUnavailable, std::to_string(lanes_per_rail) + " queue pairs: device " +
                                           rail.name + " has " +
                                           std::to_string(rail.limits.max_queue_pairs));
    }
    MK_RETURN_IF_ERROR(prepare_rail(rail, lanes_per_rail, depth_, num_receives_));
    MK_RETURN_IF_ERROR(register_flags(rail));
    address_.rails.push_back({.gid = rail.gid.gid,
                              .lid = rail.port.lid,
                              .link_layer = rail.port.link_layer,
                              .mtu_bytes = settings.mtu_bytes.value_or(rail.port.mtu_bytes),
                              .flags_rkey = rail.flags_region->rkey()});
  }
  const uint32_t num_entries = is_connected_service_ ? config_.num_ranks : 1;
  for (uint32_t peer = 0; peer < num_entries; ++peer) {
    const bool is_self = is_connected_service_ && peer == config_.rank;
    for (uint32_t rail = 0; rail < rails_.size(); ++rail) {
      for (uint32_t queue = 0; queue < settings.qps_per_peer; ++queue) {
        if (!is_self) MK_RETURN_IF_ERROR(create_lane(peer, rail));
        address_.qp_numbers.push_back(is_self ? 0 : sender_.lanes().back()->pair().number());
      }
    }
  }
  return Status::ok();
}

/// Strictly ordered, whatever the data may be: a flag that is seen means data.
Status VerbsEndpoint::register_flags(Rail& rail) {
  auto registered =
      register_by(config_.path, *rail.device, config_.heap->memory(), config_.heap->flag_region(),
                  kFlagRegionBytes, {.local_write = true, .remote_write = true});
  if (!registered) return error(registered.status().code(), registered.status().message());
  rail.flags_region = std::move(*registered);
  return Status::ok();
}

Status VerbsEndpoint::create_lane(uint32_t peer, uint32_t rail_idx) {
  Rail& rail = rails_[rail_idx];
  const auto index = static_cast<uint32_t>(sender_.lanes().size());
  Result<std::unique_ptr<QueuePair>> pair =
      rail.device->create_queue_pair({.service = config_.settings.service,
                                      .port = config_.settings.port,
                                      .send_depth = depth_,
                                      .receive_depth = num_receives_,
                                      .inline_bytes = is_connected_service_ ? kInlineBytes : 0,
                                      .qkey = address_.qkey,
                                      .send_completions = rail.sends.get(),
                                      .receive_completions = rail.receives.get()});
  if (!pair) return error(pair.status().code(), pair.status().message());
  if (!is_connected_service_) {
    MK_RETURN_IF_ERROR((*pair)->connect({.port = config_.settings.port,
                                         .sequence = address_.sequence,
                                         .rnr_retry = config_.settings.rnr_retry}));
  }
  const auto num_on_rail = static_cast<uint32_t>(
      std::ranges::count(receivers_, rail_idx, [](const Receiver& r) { return r.rail; }));
  sender_.lanes().push_back(
      std::make_unique<Lane>(rail, std::move(*pair),
                             LaneConfig{.rail_idx = rail_idx,
                                        .index = index,
                                        .first_word = num_on_rail * depth_,
                                        .depth = depth_,
                                        .service = config_.settings.service}));
  receivers_.push_back({.rail = rail_idx, .peer = peer});
  return post_receives(index, num_receives_);
}

Status VerbsEndpoint::check_address(const EndpointAddress& a, uint32_t peer) const {
  const auto refuse = [&](const std::string& what) {
    return error(Code::kInvalidArgument,
                 "the address of rank " + std::to_string(peer) + " " + what);
  };
  if (a.service != address_.service) return refuse("is of another transport");
  if (a.rank != peer || a.num_ranks != config_.num_ranks) {
    return refuse("is of rank " + std::to_string(a.rank) + " of " + std::to_string(a.num_ranks) +
                  ", not of " + std::to_string(config_.num_ranks));
  }
  if (a.rails.size() != address_.rails.size() || a.qps_per_peer != address_.qps_per_peer) {
    return refuse("has " + std::to_string(a.rails.size()) +
                  " devices and qps_per_peer = " + std::to_string(a.qps_per_peer) + ", this rank " +
                  std::to_string(address_.rails.size()) + " and " +
                  std::to_string(address_.qps_per_peer));
  }
  for (size_t rail = 0; rail < a.rails.size(); ++rail) {
    if (a.rails[rail].link_layer == address_.rails[rail].link_layer) continue;
    return refuse("has another link layer on device " + std::to_string(rail));
  }
  return Status::ok();
}

Status VerbsEndpoint::connect(std::span<const std::string> address_of_rank) {
  if (is_ready_) return error(Code::kInvalidArgument, "connected twice");
  if (address_of_rank.size() != config_.num_ranks) {
    return error(Code::kInvalidArgument, std::to_string(address_of_rank.size()) +
                                             " addresses: there are " +
                                             std::to_string(config_.num_ranks) + " ranks");
  }
  for (uint32_t peer = 0; peer < config_.num_ranks; ++peer) {
    if (peer == config_.rank || address_of_rank[peer].empty()) continue;
    Result<EndpointAddress> address = decode_address(address_of_rank[peer]);
    if (!address) return error(address.status().code(), address.status().message());
    MK_RETURN_IF_ERROR(check_address(*address, peer));
    MK_RETURN_IF_ERROR(connect_peer(*address, peer));
    peers_[peer] = std::move(*address);
  }
  is_ready_ = true;
  return Status::ok();
}

Status VerbsEndpoint::connect_peer(const EndpointAddress& address, uint32_t peer) {
  Location nowhere{.address = address.flags_address};
  Location own_flags{.address = address_.flags_address};
  // Queues in the outer loop, so that writes that take turns change the rail each time.
  for (uint32_t queue = 0; queue < config_.settings.qps_per_peer; ++queue) {
    for (uint32_t rail = 0; rail < rails_.size(); ++rail) {
      Result<Route> route = connect_route(address, peer, rail, queue);
      if (!route) {
        return error(route.status().code(), "connecting to rank " + std::to_string(peer) + ": " +
                                                route.status().message());
      }
      sender_.routes(peer).push_back(*route);
      nowhere.keys[rail] = address.rails[rail].flags_rkey;
      own_flags.keys[rail] = rails_[rail].flags_region->lkey();
    }
  }
  sender_.set_nowhere(peer, own_flags, nowhere);
  return Status::ok();
}

Result<Route> VerbsEndpoint::connect_route(const EndpointAddress& address, uint32_t peer,
                                           uint32_t rail_idx, uint32_t queue) {
  const Settings& settings = config_.settings;
  Rail& rail = rails_[rail_idx];
  const RailAddress& remote = address.rails[rail_idx];
  Route route{.lane = static_cast<uint32_t>(lane_idx(peer, rail_idx, queue)),
              .remote_number = address.qp_number(config_.rank, rail_idx, queue),
              .remote_qkey = address.qkey};
  QueuePair& pair = sender_.lanes()[route.lane]->pair();
  ConnectConfig connection{
      .port = settings.port, .sequence = address_.sequence, .rnr_retry = settings.rnr_retry};
  if (is_connected_service_) {
    connection.remote_number = route.remote_number;
    connection.remote_sequence = address.sequence;
    connection.remote_lid = remote.lid;
    connection.remote_gid = remote.gid;
    connection.is_global =
        rail.port.link_layer == LinkLayer::kEthernet || settings.gid_index.has_value();
    connection.gid_index = rail.gid.index;
    connection.traffic_class = settings.traffic_class;
    connection.service_level = settings.service_level;
    connection.mtu_bytes = std::min(address_.rails[rail_idx].mtu_bytes, remote.mtu_bytes);
    connection.timeout = settings.timeout;
    connection.retry_count = settings.retry_count;
    MK_RETURN_IF_ERROR(pair.connect(connection));
    return route;
  }
  Result<std::unique_ptr<AddressHandle>> handle =
      rail.device->create_address_handle(settings.port, rail.gid.index, remote.gid);
  if (!handle) return handle.status();
  route.handle = handle->get();
  peer_of_source_[{rail_idx, (*handle)->number(), route.remote_number}] = peer;
  handles_.push_back(std::move(*handle));
  return route;
}

}  // namespace mkernel::verbs
