// Transports by name: the one place that knows all of them.
#pragma once
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include <mkernel/options.h>
#include <mkernel/status.h>

#include "memory/symmetric_heap.h"
#include "network/transport.h"

namespace mkernel {

/// The ranks that live in this process, and how it reaches all.
struct EndpointsConfig {
  const ClusterOptions& options;
  uint32_t first_rank;                     // that lives here
  std::span<SymmetricHeap* const> heaps;   // of the ranks that live here
  std::span<const HeapView* const> views;  // by rank, null where a heap is not reached
  uint64_t limit_ns;                       // of a wait for the network
};

/// All that there are, best known first.
std::vector<std::string> transport_names();

/// Errors: invalid_argument if no transport has this name.
Status check_transport_name(const std::string& name);

/// ok if this process could use the transport with these options, else why not: an endpoint is
/// made, and goes again.
Status probe_transport(const std::string& name, const ClusterOptions& options);

/// One endpoint for each rank that lives here, not connected yet.
/// Errors: as above; unsupported or unavailable if this build or this machine lacks the transport;
/// what the transport says of its options.
Result<std::vector<std::unique_ptr<Endpoint>>> create_endpoints(const std::string& name,
                                                                const EndpointsConfig& config);

}  // namespace mkernel
