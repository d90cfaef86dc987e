// Launches of the host machine, one function per operator.
#pragma once
#include "host/host_stream.h"
#include "protocol/all_gather_gemm.h"

namespace mkernel {

/// Enqueues one launch: op.num_blocks blocks of two threads each.
void launch_on_host(const AllGatherGemmWork& op, HostStream& stream);

}  // namespace mkernel
