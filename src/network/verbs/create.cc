// From options to an endpoint: rails are opened, the way to the heap is found, and what carries the
// bytes is made.
#include <utility>

#include "network/staged.h"
#include "network/topology.h"
#include "network/verbs/endpoint.h"
#include "network/verbs/nic_path.h"
#include "network/verbs/verbs.h"

namespace mkernel::verbs {
namespace {

struct Opened {
  Settings settings;
  std::vector<Rail> rails;
  FoundPath found;
};

Result<Opened> open(Api& api, Service service, const VerbsOptions& options, DeviceMemory& memory,
                    const Log& log) {
  Result<Settings> settings = settings_of(options, service);
  if (!settings) return settings.status();
  Result<std::vector<std::string>> names = api.devices();
  if (!names) return names.status();
  const std::vector<std::string> candidates =
      in_order_of_distance(std::move(*names), memory.pci_place(), options.sysfs, log);
  Result<std::vector<Rail>> rails = open_rails(api, options, candidates, *settings, log);
  if (!rails) return rails.status();
  Result<FoundPath> found = find_nic_path(*rails, memory, options.staging);
  if (!found) return found.status();
  return Opened{*settings, std::move(*rails), std::move(*found)};
}

std::string describe(const FoundPath& found) {
  return name_of(found.path) + (found.why_not.empty() ? "" : " (" + found.why_not + ")");
}

/// The same endpoint, on host memory, below bounce buffers.
Result<std::unique_ptr<Endpoint>> create_bounced(const std::shared_ptr<Api>& api,
                                                 const CreateConfig& config) {
  CreateConfig below = config;
  below.options.staging = Staging::kAuto;  // of memory that is the host's
  return create_staged({.rank = config.rank,
                        .num_ranks = config.num_ranks,
                        .slots = static_cast<uint32_t>(config.options.staging_slots),
                        .piece_bytes = static_cast<uint64_t>(config.options.staging_chunk_bytes),
                        .limit_ns = config.limit_ns},
                       *config.heap, [&](SymmetricHeap& bounce) {
                         below.heap = &bounce;
                         return create_endpoint(api, below);
                       });
}

}  // namespace

Result<std::string> describe_nic_path(const std::shared_ptr<Api>& api, Service service,
                                      const VerbsOptions& options, DeviceMemory& memory) {
  const Result<Opened> opened = open(*api, service, options, memory, {});
  if (!opened) return opened.status();
  return describe(opened.value().found);
}

Result<std::unique_ptr<Endpoint>> create_endpoint(const std::shared_ptr<Api>& api,
                                                  const CreateConfig& config) {
  if (config.num_ranks == 0 || config.rank >= config.num_ranks) {
    return Status(Code::kInvalidArgument, "verbs: rank " + std::to_string(config.rank) + " of " +
                                              std::to_string(config.num_ranks));
  }
  Result<Opened> opened =
      open(*api, config.service, config.options, config.heap->memory(), config.log);
  if (!opened) return opened.status();
  if (config.log && !opened->found.why_not.empty()) {
    config.log("memory of rank " + std::to_string(config.rank) + " by " + describe(opened->found));
  }
  if (opened->found.path == NicPath::kBounce) {
    opened->rails.clear();  // to be opened again, below
    return create_bounced(api, config);
  }
  return VerbsEndpoint::create({.settings = opened->settings,
                                .heap = config.heap,
                                .rank = config.rank,
                                .num_ranks = config.num_ranks,
                                .limit_ns = config.limit_ns,
                                .path = opened->found.path},
                               api, std::move(opened->rails));
}

}  // namespace mkernel::verbs
