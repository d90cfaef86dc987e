// The transport over libfabric: writes of a rank go as RMA into the heaps of its peers, over any
// provider that has reliable unconnected endpoints. The library is looked for when it is asked for,
// so a program starts with and without it.
//
// A link is taken to keep no order, and tells arrival by immediates (arrival.h). Progress is the
// caller's: connections are made, data is placed and delivery is confirmed within poll(), so the
// receiver of a write has to poll too.
//
// Where the network cannot reach a heap (memory of a GPU), bytes go through bounce buffers in host
// memory on both sides; see network/staged.h.
#pragma once
#include <cstdint>
#include <memory>

#include <mkernel/options.h>
#include <mkernel/status.h>

#include "memory/symmetric_heap.h"
#include "network/transport.h"

namespace mkernel {

/// The endpoint of one rank of `num_ranks`; the ranks may live in any processes. A write that the
/// provider does not take for limit_ns, though nothing else goes to that peer, fails; closing waits
/// for what is in flight as long as any of it arrives, for limit_ns or a second at most.
/// Errors: invalid_argument, naming the option; unavailable if there is no library, provider or
/// interface; unsupported if the provider cannot do what is needed, or without libfabric's headers
/// when this was built.
Result<std::unique_ptr<Endpoint>> create_libfabric(const LibfabricOptions& options,
                                                   SymmetricHeap& heap, uint32_t rank,
                                                   uint32_t num_ranks, uint64_t limit_ns);

}  // namespace mkernel
