#include "transports.h"

#include "network/loopback.h"

namespace mkernel::app {
namespace {

using Heaps = std::span<SymmetricHeap* const>;

struct Transport {
  const char* name;
  Result<Endpoints> (*create)(const ClusterOptions& options, Heaps heaps);
};

constexpr Transport kTransports[] = {
    {"loopback", [](const ClusterOptions& o,
                    Heaps heaps) { return create_loopback({.link = o.loopback}, heaps); }},
};

Status connect_all(const Endpoints& endpoints, std::span<const HeapRegion* const> regions) {
  std::vector<std::string> addresses;
  for (const auto& endpoint : endpoints) addresses.push_back(endpoint->address());
  for (const auto& endpoint : endpoints) MK_RETURN_IF_ERROR(endpoint->connect(addresses));
  for (uint32_t owner = 0; owner < endpoints.size(); ++owner) {
    const HeapRegion& region = *regions[owner];
    const Result<std::string> key = endpoints[owner]->export_region(region);
    if (!key) return key.status();
    for (uint32_t rank = 0; rank < endpoints.size(); ++rank) {
      if (rank == owner) continue;
      MK_RETURN_IF_ERROR(
          endpoints[rank]->import_region(owner, region.address, region.bytes, key.value()));
    }
  }
  return Status::ok();
}

}  // namespace

Result<Endpoints> create_endpoints(const std::string& transport, const ClusterOptions& options,
                                   Heaps heaps, std::span<const HeapRegion* const> regions) {
  for (const Transport& one : kTransports) {
    if (transport != one.name) continue;
    Result<Endpoints> endpoints = one.create(options, heaps);
    if (!endpoints) return endpoints.status();
    MK_RETURN_IF_ERROR(connect_all(endpoints.value(), regions));
    return endpoints;
  }
  return Status(Code::kInvalidArgument, "no transport is called '" + transport + "'");
}

}  // namespace mkernel::app
