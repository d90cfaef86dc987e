#include "network/verbs/settings.h"

#include <algorithm>
#include <array>
#include <bit>
#include <string>

namespace mkernel::verbs {
namespace {

struct Range {
  const char* name;
  int64_t value, least, most;
  int64_t unset;  // stands for "choose", and is allowed as well
};

Status check_range(const Range& r) {
  if (r.value == r.unset || (r.value >= r.least && r.value <= r.most)) return Status::ok();
  return {Code::kInvalidArgument, std::string("verbs: ") + r.name + " = " +
                                      std::to_string(r.value) + ": " + std::to_string(r.least) +
                                      " to " + std::to_string(r.most)};
}

uint32_t or_else(int value, uint32_t fallback) {
  return value < 0 ? fallback : static_cast<uint32_t>(value);
}

std::optional<uint32_t> if_set(int value, int unset) {
  if (value == unset) return std::nullopt;
  return static_cast<uint32_t>(value);
}

Status not_known(const char* name, int value, const char* link, const std::string& device,
                 const char* hint = "") {
  return {Code::kInvalidArgument, std::string("verbs: ") + name + " = " + std::to_string(value) +
                                      ": " + link + " (device " + device + ") knows no such thing" +
                                      hint};
}

}  // namespace

Result<Settings> settings_of(const VerbsOptions& o, Service service) {
  constexpr int64_t kNone = INT64_MIN;
  for (const Range& range :
       {Range{"port", o.port, 1, 255, kNone}, Range{"gid_index", o.gid_index, 0, 65535, -1},
        Range{"traffic_class", o.traffic_class, 0, 255, -1},
        Range{"service_level", o.service_level, 0, 15, -1}, Range{"mtu", o.mtu, 256, 4096, 0},
        // 0 would be no limit, and a dead peer never noticed
        Range{"timeout", o.timeout, 1, 31, -1}, Range{"retry_count", o.retry_count, 0, 7, -1},
        Range{"rnr_retry", o.rnr_retry, 0, 7, -1},
        Range{"qps_per_peer", o.qps_per_peer, 1, 16, kNone}, Range{"depth", o.depth, 1, 32768, 0},
        Range{"split_bytes", o.split_bytes, 1, INT64_MAX, kNone},
        Range{"staging_chunk_bytes", o.staging_chunk_bytes, 1, 1 << 30, kNone},
        Range{"staging_slots", o.staging_slots, 1, 16384, kNone}}) {
    MK_RETURN_IF_ERROR(check_range(range));
  }
  if (!std::has_single_bit(static_cast<unsigned>(o.mtu)) && o.mtu != 0) {
    return Status(Code::kInvalidArgument,
                  "verbs: mtu = " + std::to_string(o.mtu) + ": 256, 512, 1024, 2048 or 4096");
  }
  if (o.devices.size() > kMaxRails) {
    return Status(Code::kInvalidArgument, "verbs: " + std::to_string(o.devices.size()) +
                                              " devices: at most " + std::to_string(kMaxRails));
  }
  for (const std::string& name : o.devices) {
    if (std::ranges::count(o.devices, name) == 1) continue;
    return Status(Code::kInvalidArgument, "verbs: devices: " + name + " is there twice");
  }
  return Settings{.service = service,
                  .port = static_cast<uint32_t>(o.port),
                  .gid_index = if_set(o.gid_index, -1),
                  .traffic_class = or_else(o.traffic_class, 0),
                  .service_level = or_else(o.service_level, 0),
                  .mtu_bytes = if_set(o.mtu, 0),
                  .timeout = or_else(o.timeout, 14),
                  .retry_count = or_else(o.retry_count, 6),
                  .rnr_retry = or_else(o.rnr_retry, 7),
                  .qps_per_peer = static_cast<uint32_t>(o.qps_per_peer),
                  .depth = if_set(o.depth, 0),
                  .split_bytes = static_cast<uint64_t>(o.split_bytes),
                  .relaxed_ordering = o.relaxed_ordering};
}

Status check_link(const VerbsOptions& o, LinkLayer link_layer, const std::string& device) {
  struct Option {
    const char* name;
    int value, unset;
  };
  if (link_layer == LinkLayer::kEfa) {
    for (const Option& option :
         {Option{"gid_index", o.gid_index, -1}, Option{"traffic_class", o.traffic_class, -1},
          Option{"service_level", o.service_level, -1}, Option{"mtu", o.mtu, 0},
          Option{"timeout", o.timeout, -1}, Option{"retry_count", o.retry_count, -1}}) {
      if (option.value != option.unset) {
        return not_known(option.name, option.value, "EFA", device);
      }
    }
  }
  if (link_layer == LinkLayer::kInfiniband && o.traffic_class >= 0 && o.gid_index < 0) {
    return not_known("traffic_class", o.traffic_class, "InfiniBand without a global route", device,
                     "; gid_index makes one");
  }
  if (link_layer == LinkLayer::kEthernet && o.service_level > 7) {
    return not_known("service_level", o.service_level, "Ethernet", device, ": 0 to 7");
  }
  return Status::ok();
}

}  // namespace mkernel::verbs
