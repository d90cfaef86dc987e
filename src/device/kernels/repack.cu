#include <cstdint>

#include "device/kernels/repack.h"

namespace mkernel {
namespace {

constexpr uint32_t kThreads = 256;
constexpr uint32_t kPerThread = 8;  // elements: one 16-byte store

// A thread gathers 8 neighbours of a row and stores them at once. The gather's 2-byte loads of a
// warp cover 512 contiguous bytes, so all but the first of each line hit L1.
__global__ void __launch_bounds__(kThreads) repack_kernel(RepackArguments a) {
  const uint32_t groups = (a.cols + kPerThread - 1) / kPerThread;
  const uint64_t total = a.rows * groups;
  const uint64_t stride = uint64_t{gridDim.x} * kThreads;
  for (uint64_t i = uint64_t{blockIdx.x} * kThreads + threadIdx.x; i < total; i += stride) {
    const uint64_t row = i / groups;
    const uint32_t col = static_cast<uint32_t>(i % groups) * kPerThread;
    const uint16_t* from = static_cast<const uint16_t*>(a.source) + row * a.source_ld + col;
    uint16_t* to = static_cast<uint16_t*>(a.target) + row * a.target_ld + col;
    if (col + kPerThread <= a.cols) {
      uint32_t words[4];
#pragma unroll
      for (uint32_t j = 0; j < 4; ++j) {
        words[j] = __ldg(from + 2 * j) | (uint32_t{__ldg(from + 2 * j + 1)} << 16);
      }
      *reinterpret_cast<uint4*>(to) = make_uint4(words[0], words[1], words[2], words[3]);
    } else {
      for (uint32_t j = 0; col + j < a.cols; ++j) to[j] = from[j];
    }
  }
}

}  // namespace

cudaError_t load_repack() {
  cudaFuncAttributes attributes;
  return cudaFuncGetAttributes(&attributes, repack_kernel);
}

cudaError_t launch_repack(const RepackArguments& arguments, cudaStream_t stream) {
  if (arguments.rows == 0 || arguments.cols == 0) return cudaSuccess;
  const uint64_t groups = (arguments.cols + kPerThread - 1) / kPerThread;
  const uint64_t blocks = (arguments.rows * groups + kThreads - 1) / kThreads;
  constexpr uint64_t kMaxBlocks = 4096;
  repack_kernel<<<static_cast<uint32_t>(blocks < kMaxBlocks ? blocks : kMaxBlocks), kThreads, 0,
                  stream>>>(arguments);
  return cudaGetLastError();
}

}  // namespace mkernel
