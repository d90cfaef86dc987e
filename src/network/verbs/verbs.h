// Endpoints on the verbs libraries of the system, or on any other implementation of their calls.
#pragma once
#include <cstdint>
#include <memory>
#include <string>

#include <mkernel/options.h>
#include <mkernel/status.h>

#include "core/log.h"
#include "memory/symmetric_heap.h"
#include "network/transport.h"
#include "network/verbs/api.h"

namespace mkernel {

/// One rank's endpoint over RC queue pairs (InfiniBand, RoCE): in order, unless the heap's memory
/// has to go by bounce buffers (verbs/nic_path.h), which keep none. limit_ns bounds close().
/// Errors: unsupported (built without the headers, or the device is EFA), unavailable (no library,
/// device, port or GID), invalid_argument (an option).
Result<std::unique_ptr<Endpoint>> create_verbs(const VerbsOptions& options, SymmetricHeap& heap,
                                               uint32_t rank, uint32_t num_ranks, uint64_t limit_ns,
                                               const Log& log = {});

/// The same over SRD queue pairs of EFA devices, which keep no order.
/// Errors: also unsupported if the device or its library cannot do RDMA write.
Result<std::unique_ptr<Endpoint>> create_efa(const VerbsOptions& options, SymmetricHeap& heap,
                                             uint32_t rank, uint32_t num_ranks, uint64_t limit_ns,
                                             const Log& log = {});

/// How NICs reach a device's memory, for a report: "host memory", or e.g. "nvidia-peermem (dma-buf:
/// ...)", with the reason why nothing nearer works. `is_efa` as of create_efa.
/// Errors: as above.
Result<std::string> describe_verbs_path(const VerbsOptions& options, bool is_efa,
                                        DeviceMemory& memory);

namespace verbs {

struct CreateConfig {
  Service service = Service::kConnected;
  VerbsOptions options = {};
  SymmetricHeap* heap = nullptr;
  uint32_t rank = 0;
  uint32_t num_ranks = 0;
  uint64_t limit_ns = 0;
  Log log = {};
};

/// The same on any implementation of the calls.
Result<std::unique_ptr<Endpoint>> create_endpoint(const std::shared_ptr<Api>& api,
                                                  const CreateConfig& config);

/// See describe_verbs_path().
Result<std::string> describe_nic_path(const std::shared_ptr<Api>& api, Service service,
                                      const VerbsOptions& options, DeviceMemory& memory);

}  // namespace verbs
}  // namespace mkernel
