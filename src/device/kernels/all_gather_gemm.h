// The compiled instances of the AllGather+GEMM kernel.
#pragma once
#include <cstdint>

namespace mkernel {

/// What a launch needs to know of a kernel.
struct KernelInstance {
  const void* function;
  uint32_t threads;
  uint32_t shared_bytes;  // dynamic
  uint32_t cluster;       // blocks per cluster; they feed one tile together
  uint32_t tile_m;        // of that tile
  uint32_t tile_n;
};

// Tiles of 128 x 256.
KernelInstance all_gather_gemm_bf16_kn();
KernelInstance all_gather_gemm_bf16_nk();
KernelInstance all_gather_gemm_fp16_kn();
KernelInstance all_gather_gemm_fp16_nk();
// Tiles of 128 x 128.
KernelInstance all_gather_gemm_bf16_kn_n128();
KernelInstance all_gather_gemm_bf16_nk_n128();
KernelInstance all_gather_gemm_fp16_kn_n128();
KernelInstance all_gather_gemm_fp16_nk_n128();

}  // namespace mkernel
