// Common to the check and the benchmark of the GEMM main loop: inputs, launch, reference.
#pragma once
#include <cuda_runtime.h>

#include <cmath>
#include <cstdio>
#include <cstdlib>

#include "device/tensor_map.h"
#include "gemm_core_kernel.cuh"

#define CHECK_CUDA(call)                                                                    \
  do {                                                                                      \
    const cudaError_t error_ = (call);                                                      \
    if (error_ != cudaSuccess) {                                                            \
      std::printf("%s:%d %s: %s\n", __FILE__, __LINE__, #call, cudaGetErrorString(error_)); \
      std::exit(1);                                                                         \
    }                                                                                       \
  } while (false)

namespace mkernel::test {

constexpr uint16_t kPoison = 0xffff;  // a NaN in bf16 and in fp16

__host__ __device__ inline uint32_t hash(uint64_t x) {
  x = (x ^ (x >> 31)) * 0x9e3779b97f4a7c15ull;
  x = (x ^ (x >> 29)) * 0xbf58476d1ce4e5b9ull;
  return static_cast<uint32_t>(x >> 32);
}

template <DType kType>
__device__ inline float to_float(uint16_t bits) {
  if constexpr (kType == DType::kBf16) return __bfloat162float(__ushort_as_bfloat16(bits));
  return __half2float(__ushort_as_half(bits));
}
template <DType kType>
__device__ inline uint16_t from_float(float value) {
  if constexpr (kType == DType::kBf16) return __bfloat16_as_ushort(__float2bfloat16_rn(value));
  return __half_as_ushort(__float2half_rn(value));
}

// Integers -3..3, or standard normal. Padding between cols and ld is poison: it must not matter.
template <DType kType>
__global__ void fill_kernel(uint16_t* data, uint64_t rows, uint64_t cols, uint64_t ld,
                            uint64_t seed, bool integers) {
  for (uint64_t i = blockIdx.x * uint64_t{blockDim.x} + threadIdx.x; i < rows * ld;
       i += uint64_t{gridDim.x} * blockDim.x) {
    if (i % ld >= cols) {
      data[i] = kPoison;
      continue;
    }
    const uint32_t u = hash(seed * 0x1000003 + 2 * i), v = hash(seed * 0x1000003 + 2 * i + 1);
    const float normal = sqrtf(-2 * logf((u + 1.f) * 2.3283e-10f)) * cospif(v * 4.6566e-10f);
    data[i] = from_float<kType>(integers ? float(int(u % 7) - 3) : normal);
  }
}

struct Mismatch {
  unsigned long long count;
  unsigned long long first;  // position in C, ld included
  double worst;              // error over tolerance
};

struct CheckArguments {
  const uint16_t *a, *b, *c;
  uint64_t lda, ldb, ldc;
  uint32_t m, n, k;
  bool is_kn;
  bool exact;  // inputs are integers: sums have no error, so the rounded value is known
};

// One thread per word of C's allocation, padding included: that must still be poison.
template <DType kType>
__global__ void check_kernel(const CheckArguments t, Mismatch* result) {
  const uint64_t i = blockIdx.x * uint64_t{blockDim.x} + threadIdx.x;
  if (i >= t.m * t.ldc) return;
  const uint64_t row = i / t.ldc, col = i % t.ldc;
  bool good;
  double ratio = 0;
  if (col >= t.n) {
    good = t.c[i] == kPoison;
  } else {
    double sum = 0, magnitude = 0;
    for (uint64_t j = 0; j < t.k; ++j) {
      const double product =
          double(to_float<kType>(t.a[row * t.lda + j])) *
          double(to_float<kType>(t.is_kn ? t.b[j * t.ldb + col] : t.b[col * t.ldb + j]));
      sum += product;
      magnitude += fabs(product);
    }
    const double value = to_float<kType>(t.c[i]);
    if (t.exact) {
      good = value == to_float<kType>(from_float<kType>(float(sum)));
    } else {
      // Half an ulp of rounding, and fp32 sums.
      const double unit = kType == DType::kBf16 ? 1.0 / 256 : 1.0 / 2048;
      ratio = fabs(value - sum) / (1.01 * unit * fabs(sum) + 2e-6 * magnitude + 1e-7);
      good = ratio <= 1;  // false for NaN
    }
  }
  if (!good && atomicAdd(&result->count, 1ull) == 0) {
    result->first = i;
    result->worst = ratio;
  }
}

inline uint16_t* device_words(uint64_t count) {
  void* p = nullptr;
  CHECK_CUDA(cudaMalloc(&p, count * 2 + 64));
  return static_cast<uint16_t*>(p);
}

template <DType kType>
__global__ void count_differences_kernel(const uint16_t* x, const uint16_t* y, uint64_t count,
                                         float absolute, float relative,
                                         unsigned long long* num_different) {
  for (uint64_t i = blockIdx.x * uint64_t{blockDim.x} + threadIdx.x; i < count;
       i += uint64_t{gridDim.x} * blockDim.x) {
    const float value = to_float<kType>(y[i]);
    if (!(fabsf(to_float<kType>(x[i]) - value) <= absolute + fabsf(value) * relative)) {
      atomicAdd(num_different, 1ull);
    }
  }
}

/// Counts bf16 elements of two arrays that differ by more than a tolerance; NaN always does.
class DifferenceCounter {
 public:
  DifferenceCounter() {
    CHECK_CUDA(cudaMalloc(&count_, sizeof(*count_)));
    CHECK_CUDA(cudaMemset(count_, 0, sizeof(*count_)));
  }
  ~DifferenceCounter() { cudaFree(count_); }
  DifferenceCounter(const DifferenceCounter&) = delete;
  DifferenceCounter& operator=(const DifferenceCounter&) = delete;

  void add(const uint16_t* x, const uint16_t* y, uint64_t count, float absolute, float relative) {
    count_differences_kernel<DType::kBf16><<<1024, 256>>>(x, y, count, absolute, relative, count_);
    CHECK_CUDA(cudaGetLastError());
  }
  unsigned long long total() const {
    unsigned long long total;
    CHECK_CUDA(cudaMemcpy(&total, count_, sizeof(total), cudaMemcpyDeviceToHost));
    return total;
  }

 private:
  unsigned long long* count_;
};

inline Matrix matrix_of(void* data, uint64_t rows, uint64_t cols, uint64_t ld) {
  return Matrix{data, int64_t(rows), int64_t(cols), int64_t(ld)};
}

inline uint64_t round_up_8(uint64_t x) { return (x + 7) / 8 * 8; }

/// Launches Config's kernel; keeps the tickets that its launches use up.
template <class Config>
struct Launcher {
  int num_clusters = 0;
  unsigned long long* tickets = nullptr;
  unsigned long long used = 0;

  Launcher() {
    cudaDeviceProp properties;
    CHECK_CUDA(cudaGetDeviceProperties(&properties, 0));
    num_clusters = properties.multiProcessorCount / Config::kCluster;
    CHECK_CUDA(cudaMalloc(&tickets, sizeof(*tickets)));
    CHECK_CUDA(cudaMemset(tickets, 0, sizeof(*tickets)));
    CHECK_CUDA(cudaFuncSetAttribute(gemm_core_kernel<Config>,
                                    cudaFuncAttributeMaxDynamicSharedMemorySize,
                                    Config::kSharedBytes));
  }
  ~Launcher() { cudaFree(tickets); }

  void operator()(const GemmArguments& arguments, uint32_t rows0, uint32_t rows1,
                  uint32_t group_rows) {
    const Raster raster{{rows0, rows1}, arguments.n, group_rows, tickets, used};
    used += num_tiles<Config>(raster, 0) + num_tiles<Config>(raster, 1) + num_clusters;
    gemm_core_kernel<Config>
        <<<num_clusters * Config::kCluster, Config::kNumThreads, Config::kSharedBytes>>>(arguments,
                                                                                         raster);
    CHECK_CUDA(cudaGetLastError());
  }
};

}  // namespace mkernel::test
