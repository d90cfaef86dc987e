// Hardware barriers 0..15 of a CTA. Their ids are handed out here and nowhere else.
#pragma once
#include <cstdint>

namespace mkernel::ptx {

enum class NamedBarrier : uint32_t {
  kSyncthreads = 0,  // what __syncthreads uses
  kConsumer0 = 1,    // epilogue of the first consumer warpgroup
  kConsumer1 = 2,    // epilogue of the second consumer warpgroup
};

/// Waits for `num_threads` threads (whole warps), ordering their ordinary shared-memory accesses.
__device__ __forceinline__ void named_barrier_sync(NamedBarrier id, uint32_t num_threads) {
  asm volatile("bar.sync %0, %1;" ::"r"(static_cast<uint32_t>(id)), "r"(num_threads) : "memory");
}

}  // namespace mkernel::ptx
