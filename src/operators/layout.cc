#include "operators/layout.h"

#include <algorithm>
#include <sstream>

#include "network/loopback.h"
#include "network/transports.h"
#include "operators/wait_limits.h"

namespace mkernel::detail {
namespace {

Status refuse_layout(const ClusterOptions& o, const std::string& why) {
  return Status(Code::kInvalidArgument, "nodes = " + std::to_string(o.nodes) +
                                            ", gpus = " + std::to_string(o.gpus) + ": " + why);
}

/// Ranks that share the host of rank 0.
int ranks_on_first_host(const Processes& processes) {
  int count = 0;
  for (uint32_t rank = 0; rank < processes.world(); ++rank)
    count += processes.same_host(rank, 0) ? 1 : 0;
  return count;
}

Status choose_counts(ClusterOptions& o, const Processes& processes) {
  const auto world = static_cast<int>(processes.world());
  if (o.nodes == 0 && o.gpus == 0) o.gpus = ranks_on_first_host(processes);
  if (o.nodes == 0 && o.gpus > 0) o.nodes = world / o.gpus;
  if (o.gpus == 0 && o.nodes > 0) o.gpus = world / o.nodes;
  if (o.nodes < 1 || o.gpus < 1 || int64_t{o.nodes} * o.gpus != world)
    return refuse_layout(o, "there are " + std::to_string(world) + " processes, one per rank");
  for (uint32_t rank = 0; rank < processes.world(); ++rank) {
    const auto gpus = static_cast<uint32_t>(o.gpus);
    const uint32_t first = rank / gpus * gpus;
    if (!processes.same_host(rank, first))
      return refuse_layout(o, processes.name_of(first) + " and " + processes.name_of(rank) +
                                  " would be one node, which has one host");
  }
  return Status::ok();
}

/// What must be the same everywhere. Limits may differ.
std::string fingerprint(const ClusterOptions& o) {
  std::ostringstream out;
  out << "nodes " << o.nodes << " gpus " << o.gpus << " device "
      << (o.device == DeviceKind::kHost ? "host" : "cuda") << " transport " << o.transport
      << " first_epoch " << o.first_epoch;
  return out.str();
}

}  // namespace

Status check_options(const ClusterOptions& o) {
  const auto refuse = [](const std::string& what, auto value, const std::string& allowed) {
    return Status(Code::kInvalidArgument, what + " = " + std::to_string(value) + ": " + allowed);
  };
  if (o.nodes < 1) return refuse("nodes", o.nodes, "must be at least 1");
  if (o.gpus < 1) return refuse("gpus", o.gpus, "must be at least 1");
  // A command names its destination with 16 bits.
  if (int64_t{o.nodes} * o.gpus > 65535)
    return refuse("nodes * gpus", int64_t{o.nodes} * o.gpus, "must be at most 65535");
  MK_RETURN_IF_ERROR(check_wait_limits(o));
  if (o.transport != "auto") MK_RETURN_IF_ERROR(check_transport_name(o.transport));
  return check_loopback({.link = o.loopback},
                        static_cast<size_t>(o.nodes) * static_cast<size_t>(o.gpus));
}

Status choose_layout(ClusterOptions& options, Processes& processes) {
  Status chosen = choose_counts(options, processes);
  if (chosen && options.transport == "auto") {
    const bool one_host = ranks_on_first_host(processes) == static_cast<int>(processes.world());
    options.transport = one_host || options.nodes == 1 ? "loopback" : "libfabric";
  }
  if (chosen) chosen = check_options(options);
  MK_RETURN_IF_ERROR(processes.agree("options", chosen));
  const auto all = processes.all_gather("options", fingerprint(options));
  if (!all) return all.status();
  const auto other = std::ranges::find_if(*all, [&](const auto& o) { return o != (*all)[0]; });
  if (other == all->end()) return Status::ok();
  const auto rank = static_cast<uint32_t>(other - all->begin());
  return Status(Code::kInvalidArgument, processes.name_of(rank) + " has options " + *other + ", " +
                                            processes.name_of(0) + " " + (*all)[0]);
}

}  // namespace mkernel::detail
