// Transports ready to write, for what measures them without an operator.
#pragma once
#include <memory>
#include <span>
#include <string>
#include <vector>

#include <mkernel/options.h>
#include <mkernel/status.h>

#include "memory/symmetric_heap.h"
#include "network/transport.h"

namespace mkernel::app {

using Endpoints = std::vector<std::unique_ptr<Endpoint>>;

/// The endpoints of ranks 0, 1, ... of this process, connected to each other, with all regions of
/// the heaps made known. `regions`: by rank.
/// Errors: invalid_argument for a name that is none; what the transport says.
Result<Endpoints> create_connected(const std::string& transport, const ClusterOptions& options,
                                   std::span<SymmetricHeap* const> heaps,
                                   std::span<const HeapRegion* const> regions);

}  // namespace mkernel::app
