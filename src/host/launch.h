// Launches of the host machine, one function per operator.
#pragma once
#include <span>

#include "host/host_stream.h"
#include "protocol/all_gather_gemm.h"
#include "protocol/engine_push.h"
#include "protocol/gemm_reduce.h"

namespace mkernel {

/// Enqueues one launch: op.num_blocks blocks of two threads each, and one thread for the pushes.
void launch_on_host(const AllGatherGemmWork& op, std::span<const EnginePush> pushes,
                    HostStream& stream);
void launch_on_host(const GemmReduceWork& op, HostStream& stream);

}  // namespace mkernel
