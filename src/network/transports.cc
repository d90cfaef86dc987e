#include "network/transports.h"

#include "network/libfabric/libfabric.h"
#include "network/loopback.h"
#include "network/verbs/verbs.h"

namespace mkernel {
namespace {

using Endpoints = std::vector<std::unique_ptr<Endpoint>>;

/// One after the other, for transports whose endpoints are made one by one.
template <class Create>
Result<Endpoints> one_by_one(const EndpointsConfig& c, Create&& create) {
  Endpoints endpoints;
  for (size_t i = 0; i < c.heaps.size(); ++i) {
    auto one = create(*c.heaps[i], c.first_rank + static_cast<uint32_t>(i),
                      static_cast<uint32_t>(c.views.size()));
    if (!one) return one.status();
    endpoints.push_back(std::move(one.value()));
  }
  return endpoints;
}

Result<Endpoints> loopback(const EndpointsConfig& c) {
  const LoopbackConfig config{.link = c.options.loopback};
  if (c.heaps.size() == c.views.size()) return create_loopback(config, c.heaps);
  return one_by_one(c, [&](SymmetricHeap& heap, uint32_t rank, uint32_t) {
    return create_loopback_between_processes(config, heap, rank, c.views);
  });
}

Result<Endpoints> libfabric(const EndpointsConfig& c) {
  return one_by_one(c, [&](SymmetricHeap& heap, uint32_t rank, uint32_t num_ranks) {
    return create_libfabric(c.options.libfabric, heap, rank, num_ranks, c.limit_ns);
  });
}

Result<Endpoints> verbs(const EndpointsConfig& c) {
  return one_by_one(c, [&](SymmetricHeap& heap, uint32_t rank, uint32_t num_ranks) {
    return create_verbs(c.options.verbs, heap, rank, num_ranks, c.limit_ns, c.options.log);
  });
}

Result<Endpoints> efa(const EndpointsConfig& c) {
  return one_by_one(c, [&](SymmetricHeap& heap, uint32_t rank, uint32_t num_ranks) {
    return create_efa(c.options.verbs, heap, rank, num_ranks, c.limit_ns, c.options.log);
  });
}

struct Transport {
  const char* name;
  Result<Endpoints> (*create)(const EndpointsConfig& config);
};

constexpr Transport kTransports[] = {
    {"loopback", loopback},
    {"verbs", verbs},
    {"efa", efa},
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
