#include "network/verbs/rail.h"

#include <algorithm>
#include <utility>

namespace mkernel::verbs {
namespace {

Status check_service(Device& device, const std::string& name, Service service, Rail& rail) {
  Result<EfaInfo> efa = device.efa();
  if (service == Service::kConnected) {
    if (!efa) return Status::ok();
    return {Code::kUnsupported, "verbs: device " + name + " is EFA, which has no RC: take efa"};
  }
  if (!efa) return efa.status();
  if (!efa->can_write) {
    return {Code::kUnsupported, "efa: device " + name +
                                    " or its library cannot do RDMA write, which takes an EFA "
                                    "device of the second generation and rdma-core 46"};
  }
  rail.max_write_bytes = efa->max_write_bytes;
  return Status::ok();
}

Result<Rail> open_rail(Api& api, const std::string& name, const VerbsOptions& options,
                       const Settings& settings, const Log& log) {
  Rail rail;
  rail.name = name;
  Result<std::unique_ptr<Device>> device = api.open(name);
  if (!device) return device.status();
  rail.device = std::move(*device);
  Result<DeviceLimits> limits = rail.device->limits();
  if (!limits) return limits.status();
  rail.limits = *limits;
  MK_RETURN_IF_ERROR(check_service(*rail.device, name, settings.service, rail));
  Result<PortInfo> port = rail.device->port(settings.port);
  if (!port) return port.status();
  rail.port = *port;
  if (!rail.port.active) {
    return Status(Code::kUnavailable, "verbs: device " + name + " port " +
                                          std::to_string(settings.port) + " is " + rail.port.state +
                                          ", not ACTIVE");
  }
  MK_RETURN_IF_ERROR(check_link(options, rail.port.link_layer, name));
  if (settings.mtu_bytes.value_or(0) > rail.port.mtu_bytes) {
    return Status(Code::kInvalidArgument, "verbs: mtu = " + std::to_string(*settings.mtu_bytes) +
                                              ": device " + name + " has " +
                                              std::to_string(rail.port.mtu_bytes));
  }
  Result<ChosenGid> gid =
      choose_gid(*rail.device, name, settings.port, rail.port, settings.gid_index, log);
  if (!gid) return gid.status();
  rail.gid = *gid;
  if (settings.service == Service::kConnected) rail.max_write_bytes = rail.port.max_message_bytes;
  rail.max_write_bytes = std::clamp<uint64_t>(rail.max_write_bytes, 1, UINT32_MAX);
  return rail;
}

Result<std::vector<Rail>> open_first(Api& api, const VerbsOptions& options,
                                     std::span<const std::string> names, const Settings& settings,
                                     const Log& log) {
  std::string reasons;
  for (const std::string& name : names) {
    Result<Rail> rail = open_rail(api, name, options, settings, log);
    if (!rail && rail.status().code() == Code::kInvalidArgument) return rail.status();
    if (!rail) {
      if (log) log("device " + name + " skipped: " + rail.status().message());
      reasons += "; " + rail.status().message();
      continue;
    }
    std::vector<Rail> rails;
    rails.push_back(std::move(rail).value());
    return rails;
  }
  return Status(Code::kUnavailable,
                "verbs: no usable device among " + std::to_string(names.size()) + reasons);
}

}  // namespace

Result<std::vector<Rail>> open_rails(Api& api, const VerbsOptions& options,
                                     std::span<const std::string> candidates,
                                     const Settings& settings, const Log& log) {
  if (options.devices.empty()) return open_first(api, options, candidates, settings, log);
  std::vector<Rail> rails;
  for (const std::string& name : options.devices) {
    Result<Rail> rail = open_rail(api, name, options, settings, log);
    if (!rail) return rail.status();
    rails.push_back(std::move(rail).value());
    if (rails.back().port.link_layer != rails.front().port.link_layer) {
      return Status(Code::kInvalidArgument, "verbs: devices " + rails.front().name + " and " +
                                                name + " have different link layers");
    }
  }
  return rails;
}

Status prepare_rail(Rail& rail, uint32_t num_lanes, uint32_t send_depth, uint32_t receive_depth) {
  const auto entries = [&](uint32_t depth) {
    return static_cast<uint32_t>(std::min(std::max<uint64_t>(uint64_t{num_lanes} * depth, 1),
                                          uint64_t{rail.limits.max_cqe}));
  };
  // Receives cannot be held back as sends are, so all their completions must find a place.
  if (uint64_t{num_lanes} * receive_depth > rail.limits.max_cqe) {
    return {Code::kUnavailable, "verbs: " + std::to_string(num_lanes) + " queue pairs of " +
                                    std::to_string(receive_depth) + " receives: device " +
                                    rail.name + " counts completions up to " +
                                    std::to_string(rail.limits.max_cqe) +
                                    "; take fewer qps_per_peer or less depth"};
  }
  rail.sends_room = entries(send_depth);
  Result<std::unique_ptr<CompletionQueue>> sends =
      rail.device->create_completion_queue(rail.sends_room);
  if (!sends) return sends.status();
  rail.sends = std::move(*sends);
  Result<std::unique_ptr<CompletionQueue>> receives =
      rail.device->create_completion_queue(entries(receive_depth));
  if (!receives) return receives.status();
  rail.receives = std::move(*receives);

  rail.words.resize(size_t{num_lanes} * send_depth + 1);
  Result<std::unique_ptr<MemoryRegion>> words = rail.device->register_memory(
      rail.words.data(), rail.words.size() * sizeof(uint32_t), {.local_write = true});
  if (!words) return words.status();
  rail.words_region = std::move(*words);
  return Status::ok();
}

}  // namespace mkernel::verbs
