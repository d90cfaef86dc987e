#include "network/verbs/verbs.h"

#include "network/verbs/system_api.h"

namespace mkernel {
namespace {

Result<std::unique_ptr<Endpoint>> create(const verbs::CreateConfig& config) {
  Result<std::shared_ptr<verbs::Api>> api = verbs::open_system_api();
  if (!api) return api.status();
  return verbs::create_endpoint(*api, config);
}

}  // namespace

Result<std::unique_ptr<Endpoint>> create_verbs(const VerbsOptions& options, SymmetricHeap& heap,
                                               uint32_t rank, uint32_t num_ranks, uint64_t limit_ns,
                                               const Log& log) {
  return create({.service = verbs::Service::kConnected,
                 .options = options,
                 .heap = &heap,
                 .rank = rank,
                 .num_ranks = num_ranks,
                 .limit_ns = limit_ns,
                 .log = log});
}

Result<std::unique_ptr<Endpoint>> create_efa(const VerbsOptions& options, SymmetricHeap& heap,
                                             uint32_t rank, uint32_t num_ranks, uint64_t limit_ns,
                                             const Log& log) {
  return create({.service = verbs::Service::kDatagram,
                 .options = options,
                 .heap = &heap,
                 .rank = rank,
                 .num_ranks = num_ranks,
                 .limit_ns = limit_ns,
                 .log = log});
}

Result<std::string> describe_verbs_path(const VerbsOptions& options, bool is_efa,
                                        DeviceMemory& memory) {
  Result<std::shared_ptr<verbs::Api>> api = verbs::open_system_api();
  if (!api) return api.status();
  return verbs::describe_nic_path(
      *api, is_efa ? verbs::Service::kDatagram : verbs::Service::kConnected, options, memory);
}

}  // namespace mkernel
