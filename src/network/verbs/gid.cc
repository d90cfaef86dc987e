#include "network/verbs/gid.h"

#include <algorithm>
#include <string>

namespace mkernel::verbs {
namespace {

bool is_ipv4(const Gid& gid) {  // ::ffff:a.b.c.d
  return std::all_of(gid.begin(), gid.begin() + 10, [](uint8_t b) { return b == 0; }) &&
         gid[10] == 0xff && gid[11] == 0xff;
}

bool is_link_local(const Gid& gid) { return gid[0] == 0xfe && (gid[1] & 0xc0) == 0x80; }

/// How well an entry suits a link; 0: not at all.
int rank_of(const GidEntry& entry, LinkLayer link_layer) {
  if (link_layer != LinkLayer::kEthernet) return 1;
  if (entry.type != GidType::kRoceV2) return 0;  // v1 leaves no subnet: only when it is asked for
  if (is_ipv4(entry.gid)) return 3;
  return is_link_local(entry.gid) ? 1 : 2;
}

}  // namespace

Result<ChosenGid> choose_gid(Device& device, const std::string& name, uint32_t port,
                             const PortInfo& info, std::optional<uint32_t> wanted, const Log& log) {
  const std::string who = "device " + name + " port " + std::to_string(port);
  if (wanted) {
    if (*wanted >= info.num_gids) {
      return Status(Code::kInvalidArgument, "verbs: gid_index = " + std::to_string(*wanted) + ": " +
                                                who + " has " + std::to_string(info.num_gids));
    }
    Result<std::optional<GidEntry>> entry = device.gid(port, *wanted);
    if (!entry) return entry.status();
    if (!*entry) {
      return Status(Code::kUnavailable, "verbs: gid_index = " + std::to_string(*wanted) + ": " +
                                            who + " has nothing there");
    }
    return ChosenGid{*wanted, (*entry)->gid};
  }
  std::optional<ChosenGid> best;
  int best_rank = 0;
  for (uint32_t i = 0; i < info.num_gids; ++i) {
    Result<std::optional<GidEntry>> entry = device.gid(port, i);
    if (!entry) {
      if (log) log(who + ": GID " + std::to_string(i) + " skipped: " + entry.status().message());
      continue;
    }
    const int rank = *entry ? rank_of(**entry, info.link_layer) : 0;
    if (rank <= best_rank) continue;
    best = {i, (*entry)->gid};
    best_rank = rank;
  }
  if (best) return *best;
  return Status(Code::kUnavailable, "verbs: " + who + " has no usable GID among " +
                                        std::to_string(info.num_gids) +
                                        (info.link_layer == LinkLayer::kEthernet
                                             ? ": RoCE v2 needs an IP address on the interface"
                                             : ""));
}

}  // namespace mkernel::verbs
