// Copies a matrix of any leading dimension and alignment into one that TMA can read.
#pragma once
#include <cuda_runtime_api.h>

#include <cstdint>

namespace mkernel {

struct RepackArguments {
  const void* source;  // 2-byte elements, row-major, aligned to 2 bytes
  uint64_t source_ld;  // elements
  void* target;        // aligned to 16 bytes
  uint64_t target_ld;  // elements, a multiple of 8, at least cols
  uint64_t rows;
  uint32_t cols;
};

/// Enqueues the copy. Columns cols..target_ld-1 of the target are left as they are.
cudaError_t launch_repack(const RepackArguments& arguments, cudaStream_t stream);

/// Loads the kernel on the current device, so that no later launch has to.
cudaError_t load_repack();

}  // namespace mkernel
