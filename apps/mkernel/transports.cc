#include "transports.h"

#include "network/transports.h"

namespace mkernel::app {
namespace {

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

Result<Endpoints> create_connected(const std::string& transport, const ClusterOptions& options,
                                   std::span<SymmetricHeap* const> heaps,
                                   std::span<const HeapRegion* const> regions) {
  const std::vector<const HeapView*> views(heaps.begin(), heaps.end());
  const auto limit_ns = static_cast<uint64_t>(options.timeout_us) * 1000;
  Result<Endpoints> endpoints = create_endpoints(transport, {options, 0, heaps, views, limit_ns});
  if (!endpoints) return endpoints.status();
  MK_RETURN_IF_ERROR(connect_all(endpoints.value(), regions));
  return endpoints;
}

}  // namespace mkernel::app
