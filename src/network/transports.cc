#include "network/transports.h"

#include "network/libfabric/libfabric.h"
#include "network/loopback.h"

namespace mkernel {
namespace {

using Endpoints = std::vector<std::unique_ptr<Endpoint>>;

Result<Endpoints> loopback(const EndpointsConfig& c) {
  const LoopbackConfig config{.link = c.options.loopback};
  if (c.heaps.size() == c.views.size()) return create_loopback(config, c.heaps);
  Endpoints endpoints;
  for (size_t i = 0; i < c.heaps.size(); ++i) {
    const auto rank = c.first_rank + static_cast<uint32_t>(i);
    auto one = create_loopback_between_processes(config, *c.heaps[i], rank, c.views);
    if (!one) return one.status();
    endpoints.push_back(std::move(one.value()));
  }
  return endpoints;
}

Result<Endpoints> libfabric(const EndpointsConfig& c) {
  Endpoints endpoints;
  for (size_t i = 0; i < c.heaps.size(); ++i) {
    const auto rank = c.first_rank + static_cast<uint32_t>(i);
    auto one = create_libfabric(c.options.libfabric, *c.heaps[i], rank,
                                static_cast<uint32_t>(c.views.size()), c.limit_ns);
    if (!one) return one.status();
    endpoints.push_back(std::move(one.value()));
  }
  return endpoints;
}

struct Transport {
  const char* name;
  Result<Endpoints> (*create)(const EndpointsConfig& config);
};

constexpr Transport kTransports[] = {
    {"loopback", loopback},
    {"libfabric", libfabric},
};

const Transport* find(const std::string& name) {
  for (const Transport& one : kTransports)
    if (name == one.name) return &one;
  return nullptr;
}

}  // namespace

std::vector<std::string> transport_names() {
  std::vector<std::string> names;
  for (const Transport& one : kTransports) names.emplace_back(one.name);
  return names;
}

Status check_transport_name(const std::string& name) {
  if (find(name) != nullptr) return Status::ok();
  std::string allowed = "auto";
  for (const Transport& one : kTransports) allowed += std::string(", ") + one.name;
  return Status(Code::kInvalidArgument, "transport = " + name + ": allowed are " + allowed);
}

Result<Endpoints> create_endpoints(const std::string& name, const EndpointsConfig& config) {
  MK_RETURN_IF_ERROR(check_transport_name(name));
  return find(name)->create(config);
}


Status probe_transport(const std::string& name, const ClusterOptions& options) {
  const std::unique_ptr<DeviceMemory> memory = create_host_memory();
  const auto heap = SymmetricHeap::create(*memory, 0, 1 << 20);
  if (!heap) return heap.status();
  SymmetricHeap* const heaps[] = {heap->get()};
  const HeapView* const views[] = {heap->get()};
  constexpr uint64_t kLimitNs = 1'000'000'000;
  return create_endpoints(name, {options, 0, heaps, views, kLimitNs}).status();
}

}  // namespace mkernel
