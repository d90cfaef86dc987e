// Hardware barriers 0..15 of a CTA. Their ids are handed out here and nowhere else.
#pragma once
#include <cstdint>

namespace mkernel::ptx {

enum class NamedBarrier : uint32_t {
  kSyncthreads = 0,  // what __syncthreads uses
  kConsumer0 = 1,    // epilogue of the first consumer warpgroup
  kConsumer1 = 2,    // epilogue of the second consumer warpgroup
  kTeam = 3,         // a team of warps beside the pipeline
};

/// Waits for `num_threads` threads (whole warps), ordering their ordinary shared-memory accesses.
__device__ __forceinline__ void named_barrier_sync(NamedBarrier id, uint32_t num_threads) {
  asm volatile("bar.sync %0, %1;" ::"r"(static_cast<uint32_t>(id)), "r"(num_threads) : "memory");
}

/// The same; true if `ok` is for every thread.
__device__ __forceinline__ bool named_barrier_all(NamedBarrier id, uint32_t num_threads, bool ok) {
  uint32_t all;
  asm volatile(
      "{\n .reg .pred p, q;\n"
      " setp.ne.u32 p, %3, 0;\n"
      " bar.red.and.pred q, %1, %2, p;\n"
      " selp.u32 %0, 1, 0, q;\n}"
      : "=r"(all)
      : "r"(static_cast<uint32_t>(id)), "r"(num_threads), "r"(static_cast<uint32_t>(ok))
      : "memory");
  return all != 0;
}

}  // namespace mkernel::ptx
