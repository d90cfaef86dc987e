// Launches on GPUs. For g++: no CUDA type appears here.
#pragma once
#include <array>
#include <cstdint>
#include <span>

#include <mkernel/status.h>

#include "protocol/all_gather_gemm.h"
#include "protocol/engine_push.h"
#include "protocol/gemm_reduce_work.h"

namespace mkernel {

class PushEngine;
class ScratchPool;

/// What a rank's launches use on its device.
struct LaunchResources {
  const ScratchPool& pool;
  PushEngine* engine;  // null if there is none; then no launch has pushes
};

/// The output tiles that the kernels compute, and how their blocks come.
struct KernelShape {
  uint32_t tile_m;
  std::array<uint32_t, 2> tile_n;  // of AllGather+GEMM, one of these; of other operators, the first
  uint32_t cluster;                // the number of blocks is a multiple of it
  uint32_t pad_rows;               // partial sums in work space are padded to multiples of these
  uint32_t pad_cols;
};
KernelShape kernel_shape();

/// Loads all kernels on the current device, so that no later launch has to: loading waits for the
/// device, and a kernel may be waiting there for the launch that loads.
/// Errors: unavailable if the device cannot run them.
Status load_kernels();

/// Enqueues one launch on the current device. Operands that TMA cannot
/// address (base or pitch not a multiple of 16 bytes) are repacked before it, in scratch memory.
/// Pushes run beside the kernel; the stream waits for both.
Status launch_on_cuda(const AllGatherGemmWork& op, std::span<const EnginePush> pushes,
                      const LaunchResources& resources, void* stream);
Status launch_on_cuda(const GemmReduceWork& op, const LaunchResources& resources, void* stream);

}  // namespace mkernel
