// GEMM+ReduceScatter and GEMM+AllReduce on a GPU: the protocol's launch, carried out by CUDA
// blocks. Instantiated once per translation unit, because a main loop takes ptxas long.
#pragma once
#include <cuda_runtime.h>

#include "device/cuda_reduce_block.cuh"
#include "device/kernels/gemm_reduce.h"
#include "protocol/gemm_reduce.h"

namespace mkernel {

template <class Config>
__global__ void __launch_bounds__(Config::kNumThreads, 1)
    gemm_reduce_kernel(const __grid_constant__ GemmReduceWork op,
                       const __grid_constant__ GemmArguments arguments) {
  extern __shared__ uint8_t shared[];
  CudaReduceBlock<Config> block(shared, arguments, op.sums, op.peer_slots);
  gemm_reduce(block, op);
}

template <DType kType, BLayout kBLayout>
KernelInstance gemm_reduce_instance() {
  using Config = GemmConfig<kType, kBLayout, 1, 256, /*kDelivers=*/true>;
  return gemm_kernel_instance<Config>(reinterpret_cast<const void*>(&gemm_reduce_kernel<Config>));
}

}  // namespace mkernel
