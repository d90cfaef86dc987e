// What a launch needs to know of a compiled kernel.
#pragma once
#include <cstdint>

namespace mkernel {

struct KernelInstance {
  const void* function;
  uint32_t threads;
  uint32_t shared_bytes;  // dynamic
  uint32_t cluster;       // blocks per cluster; they feed one tile together
  uint32_t tile_m;        // of that tile
  uint32_t tile_n;
};

/// Of a kernel around GemmBlock<Config>.
template <class Config>
KernelInstance gemm_kernel_instance(const void* function) {
  return {.function = function,
          .threads = Config::kNumThreads,
          .shared_bytes = Config::kSharedBytes,
          .cluster = Config::kCluster,
          .tile_m = Config::kTileRows,
          .tile_n = Config::kTileN};
}

}  // namespace mkernel
