// AllGather+GEMM on a GPU: the protocol's launch, carried out by CUDA blocks. Instantiated once per
// translation unit, because a main loop takes ptxas long.
#pragma once
#include <cuda_runtime.h>

#include "device/cuda_block.cuh"
#include "device/kernels/all_gather_gemm.h"
#include "protocol/all_gather_gemm.h"

namespace mkernel {

template <class Config>
__global__ void __launch_bounds__(Config::kNumThreads, 1)
    all_gather_gemm_kernel(const __grid_constant__ AllGatherGemmWork op,
                           const __grid_constant__ GemmArguments arguments) {
  extern __shared__ uint8_t shared[];
  CudaBlock<Config> block(shared, arguments);
  all_gather_gemm(block, op);
}

template <class Config>
KernelInstance all_gather_gemm_instance() {
  return gemm_kernel_instance<Config>(
      reinterpret_cast<const void*>(&all_gather_gemm_kernel<Config>));
}

}  // namespace mkernel
