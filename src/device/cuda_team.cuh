// Two warps of the producer warpgroup that work together beside the pipeline, as protocol/ sees
// them.
#pragma once
#include <cstdint>

#include "device/ptx/named_barrier.cuh"
#include "device/row_copy.cuh"
#include "protocol/tile_work.h"

namespace mkernel {

class CudaTeam {
 public:
  static constexpr uint32_t kFirstThread = 64;
  static constexpr uint32_t kNumThreads = 64;

  __device__ static bool is_member() {
    return threadIdx.x >= kFirstThread && threadIdx.x < kFirstThread + kNumThreads;
  }
  __device__ bool leader() const { return threadIdx.x == kFirstThread; }
  __device__ void sync() { ptx::named_barrier_sync(ptx::NamedBarrier::kTeam, kNumThreads); }
  __device__ bool all(bool ok) {
    return ptx::named_barrier_all(ptx::NamedBarrier::kTeam, kNumThreads, ok);
  }
  __device__ uint32_t broadcast(uint32_t value) {
    __shared__ uint32_t word;
    if (leader()) word = value;
    sync();
    const uint32_t result = word;
    sync();
    return result;
  }
  __device__ void copy_rows(const RowCopy& copy) {
    copy_rows_by_vectors(copy, threadIdx.x - kFirstThread, kNumThreads);
  }
};

}  // namespace mkernel
