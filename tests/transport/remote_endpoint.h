// Endpoints that live in processes of their own, one per rank, and are called from this one, so
// that a suite written for one process shows what holds between processes, and between hosts'
// networks.
#pragma once
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "memory/symmetric_heap.h"
#include "network/transport.h"

namespace mkernel::test {

/// Host memory that processes forked afterwards share, at the same addresses.
std::unique_ptr<DeviceMemory> create_memory_of_processes();

using CreateEndpoint = std::function<std::unique_ptr<Endpoint>(SymmetricHeap& heap, uint32_t rank,
                                                               uint32_t num_ranks)>;

/// Forks a process for every rank and has it create its endpoint there. The heaps' memory is of
/// create_memory_of_processes(). To be called while this process has a single thread.
std::vector<std::unique_ptr<Endpoint>> create_in_processes(
    std::span<SymmetricHeap* const> heap_of_rank, const CreateEndpoint& create);

/// Moves this process into a network namespace. Empty, or why that was not possible.
std::string enter_network_namespace(const std::string& name);

}  // namespace mkernel::test
