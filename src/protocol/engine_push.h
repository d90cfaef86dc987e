// Copies of a rank's own rows to local peers by copy engine: what a machine enqueues beside the
// kernel. Behind each comes a copy of the epoch, which the device owns, into the peer's flag; so a
// captured launch replays right.
#pragma once
#include <cstdint>
#include <vector>

#include "protocol/all_gather_gemm.h"

namespace mkernel {

/// Rows [begin, begin + rows) of the caller's A go to `dst`, then the epoch goes to `flag`.
struct EnginePush {
  uint64_t begin;
  uint64_t rows;
  char* dst;
  uint32_t* flag;
};

/// The pushes of a launch, in order. `slots` and `flags`: of the node's ranks by gpu index, as the
/// host sees them. There is one slot.
inline std::vector<EnginePush> engine_pushes(const AllGatherGemmWork& op, char* const* slots,
                                             uint32_t* const* flags) {
  std::vector<EnginePush> pushes;
  for (uint32_t i = 0; i < op.tasks.num_pushes(); ++i) {
    const GatherTask t = op.tasks.push(i);
    const Rows rows = op.tasks.chunks.chunk(t.slice, t.chunk);
    if (rows.count == 0) continue;
    const uint32_t peer = op.cluster.gpu_of(t.dst);
    const uint64_t row = op.tasks.chunks.split.slice(t.slice).begin + rows.begin;
    pushes.push_back({rows.begin, rows.count, slots[peer] + op.slot_offset(0, row),
                      flag_word(flags[peer], op.flags.arrived(0, t.slice, t.chunk))});
  }
  return pushes;
}

}  // namespace mkernel
