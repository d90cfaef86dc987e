// A network within one host, as a model of NICs: for virtual clusters and for tests.
//
// The model of a link, per pair of ranks and direction:
//   bandwidth, latency  a write leaves when the link is free, holds it for bytes / link_gbs, and
//                       may be placed link_us after that.
//   kInOrder            writes are placed one after the other, like RC.
//   kReordered          any write whose time has come may be next, in pieces in any order; its
//                       immediate shows after all its pieces, like SRD. Every third write of a
//                       link, from its first, may be placed late_us later still, so that what is
//                       posted next overtakes it for certain.
//   stalled ranks       a post to an idle endpoint (nothing in flight, so also the first of a
//                       launch) stops it for stall_us: it places and reports nothing.
//   fail_after = n      the n-th write posted in the whole fabric, counted from 0, fails, and with
//                       it all later ones between the same two ranks, as on a broken connection.
//
// There is no thread: a rank's post and poll move its own writes, through a copy channel of its own
// device, so that on GPUs the copy engines do it.
#pragma once
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include <mkernel/options.h>
#include <mkernel/status.h>

#include "memory/symmetric_heap.h"
#include "network/transport.h"

namespace mkernel {

struct LoopbackConfig {
  LoopbackOptions link = {};
  uint32_t max_in_flight = 256;
  bool repeat_immediates = false;  // each immediate comes again behind the link's next one
};

/// Whether there can be such a network.
/// Errors: invalid_argument, naming the option, its value and what is allowed.
Status check_loopback(const LoopbackConfig& config, size_t num_ranks);

/// The endpoints of ranks 0, 1, ..., whose heaps are given in that order.
/// Errors: invalid_argument, naming the option; what creating copy channels returns.
Result<std::vector<std::unique_ptr<Endpoint>>> create_loopback(
    const LoopbackConfig& config, std::span<SymmetricHeap* const> heap_of_rank);

/// The endpoint of one rank whose peers live in other processes: in order only, since there is no
/// way for an immediate. `heap_of_rank`: how this process reaches all heaps, null where it does
/// not; they outlive the endpoint. fail_after counts this process's writes.
/// Errors: as above; unsupported for kReordered.
Result<std::unique_ptr<Endpoint>> create_loopback_between_processes(
    const LoopbackConfig& config, SymmetricHeap& own, uint32_t rank,
    std::span<const HeapView* const> heap_of_rank);

}  // namespace mkernel
