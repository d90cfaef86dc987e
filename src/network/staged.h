// An endpoint by way of bounce buffers, for heaps that a network cannot reach: any other endpoint
// carries the bytes between host memory of the ranks.
//
// Each pair of ranks has `slots` buffers in each direction, at the sender and, of the same number,
// at the receiver. A write is cut into pieces; a piece is copied from the heap into a free slot of
// the sender, goes with a header into the slot of that number at the receiver, and is copied into
// its heap. Then credit goes back, and the slot is free at both ends.
//
// Invariants:
//  1. A receiver's slot is written only by the sender's slot of its number, which is used again
//     only after the credit: so never while the receiver still copies from it.
//  2. A write is complete when all its pieces have credit, so when it is in the peer's heap. Its
//     immediate shows when all its pieces are in the heap, in whatever order they came.
//  3. Credit waits for copies, which wait for nobody; a piece waits for credit. So nothing
//     deadlocks, as long as the receiver polls.
//
// It keeps no order, whatever the endpoint below does.
#pragma once
#include <cstdint>
#include <functional>
#include <memory>

#include <mkernel/status.h>

#include "memory/symmetric_heap.h"
#include "network/transport.h"

namespace mkernel {

struct StagedConfig {
  uint32_t rank = 0;
  uint32_t num_ranks = 0;
  uint32_t slots = 8;                // 1 to 16384
  uint64_t piece_bytes = 256 << 10;  // the most that a slot holds
  uint32_t max_in_flight = 256;      // writes
  // Of close(), and of a peer that has a piece and says nothing: what goes to it then fails.
  uint64_t limit_ns = 10'000'000'000;
};

/// Makes the endpoint below for a heap of host memory.
using MakeBelow = std::function<Result<std::unique_ptr<Endpoint>>(SymmetricHeap& bounce)>;

/// The endpoint below must have immediates of 32 bits.
/// Errors: what the memory or the endpoint below say; unsupported if it has shorter immediates;
/// invalid_argument for more slots, or more than 65536 ranks.
Result<std::unique_ptr<Endpoint>> create_staged(const StagedConfig& config, SymmetricHeap& heap,
                                                const MakeBelow& make_below);

}  // namespace mkernel
