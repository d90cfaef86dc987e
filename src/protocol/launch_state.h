// The words of a plan that outlive a launch and that its blocks share, on one rank.
// The device owns the epoch: the number of a launch. The last block to leave advances it.
#pragma once
#include <cstdint>

#include "core/sync.h"
#include "core/target.h"

namespace mkernel {

/// Writers and readers: blocks of the rank's own launches (gpu scope); the host reads the epoch
/// and the totals between launches, a copy engine the epoch during one. Tickets and `left` are zero
/// between launches: the last block to leave resets them while nobody else runs.
struct LaunchState {
  uint32_t epoch = 0;        // of the launch that runs or, between launches, comes; grows, wraps
  uint32_t role_ticket = 0;  // blocks started
  uint32_t task_ticket = 0;  // communication tasks claimed
  uint32_t tile_ticket = 0;  // tiles claimed
  uint32_t left = 0;         // blocks left
  uint32_t broken = 0;       // 1 once a launch ended before all its waits did; it stays
  // Totals over all launches.
  uint64_t launches = 0;
  uint64_t tiles = 0;
  uint64_t local_bytes = 0;
  uint64_t network_bytes = 0;
  uint64_t waits = 0;
};

/// What one role of one block did; its leader keeps it and adds it to the totals at the role's end.
struct Tally {
  uint32_t tiles = 0;
  uint32_t waits = 0;
  uint64_t local_bytes = 0;
  uint64_t network_bytes = 0;
};

MK_HD void add_tally(LaunchState* state, const Tally& t) {
  const auto add = [](uint64_t* total, uint64_t n) {
    if (n != 0) add_relaxed<Scope::kGpu>(total, n);
  };
  add(&state->tiles, t.tiles);
  add(&state->local_bytes, t.local_bytes);
  add(&state->network_bytes, t.network_bytes);
  add(&state->waits, t.waits);
}

/// Draws the next ticket of a counter; call it from one thread of a block.
MK_HD uint32_t draw(uint32_t* ticket) { return add_relaxed<Scope::kGpu>(ticket, 1u); }

}  // namespace mkernel
