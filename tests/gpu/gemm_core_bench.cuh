// The GEMM main loop against cuBLAS: alternating single calls, random normal inputs, several sets
// of operands so that no call finds its inputs in L2.
#pragma once
#include <cublas_v2.h>

#include <algorithm>
#include <chrono>
#include <functional>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "gemm_core_common.cuh"

namespace mkernel::test {

#define CHECK_CUBLAS(call)                                                    \
  do {                                                                        \
    const cublasStatus_t status_ = (call);                                    \
    if (status_ != CUBLAS_STATUS_SUCCESS) {                                   \
      std::printf("%s:%d %s: %d\n", __FILE__, __LINE__, #call, int(status_)); \
      std::exit(1);                                                           \
    }                                                                         \
  } while (false)

struct Shape {
  uint32_t m, n, k;
};

struct Quantiles {
  double p10, median, p90;
};

inline Quantiles quantiles_of(std::vector<float> samples) {
  std::sort(samples.begin(), samples.end());
  const auto at = [&](double q) { return double(samples[size_t(q * (samples.size() - 1) + 0.5)]); };
  return {at(0.1), at(0.5), at(0.9)};
}

/// Operand sets of one shape and layout; call(i) runs on set i % num_sets.
struct Operands {
  Shape shape;
  BLayout layout;
  std::vector<uint16_t*> a, b;
  uint16_t *c_ours, *c_theirs;

  Operands(const Shape& s, BLayout b_layout) : shape(s), layout(b_layout) {
    constexpr uint64_t kRotationBytes = 200ull << 20;  // over three times L2
    const uint64_t set_bytes = 2 * (uint64_t{s.m} * s.k + uint64_t{s.n} * s.k);
    const uint64_t num_sets = std::max<uint64_t>(2, kRotationBytes / set_bytes + 1);
    for (uint64_t i = 0; i < num_sets; ++i) {
      a.push_back(device_words(uint64_t{s.m} * s.k));
      b.push_back(device_words(uint64_t{s.n} * s.k));
      fill_kernel<DType::kBf16><<<1024, 256>>>(a[i], s.m, s.k, s.k, 10 + i, false);
      fill_kernel<DType::kBf16><<<1024, 256>>>(b[i], s.n, s.k, s.k, 1000 + i, false);
    }
    c_ours = device_words(uint64_t{s.m} * s.n);
    c_theirs = device_words(uint64_t{s.m} * s.n);
    CHECK_CUDA(cudaDeviceSynchronize());
  }
  ~Operands() {
    for (uint16_t* p : a) cudaFree(p);
    for (uint16_t* p : b) cudaFree(p);
    cudaFree(c_ours);
    cudaFree(c_theirs);
  }
  size_t num_sets() const { return a.size(); }

  GemmArguments arguments(size_t i) const {
    const Matrix sources[] = {matrix_of(a[i], shape.m, shape.k, shape.k)};
    const bool is_kn = layout == BLayout::kKN;
    const Matrix b_matrix = is_kn ? matrix_of(b[i], shape.k, shape.n, shape.n)
                                  : matrix_of(b[i], shape.n, shape.k, shape.k);
    return make_gemm_arguments({sources, b_matrix, matrix_of(c_ours, shape.m, shape.n, shape.n),
                                layout, DType::kBf16})
        .value();
  }

  // Row-major C = A B is column-major C' = B' A'.
  void cublas(cublasHandle_t handle, size_t i, uint16_t* c) const {
    const float one = 1, zero = 0;
    const bool is_kn = layout == BLayout::kKN;
    CHECK_CUBLAS(cublasGemmEx(handle, is_kn ? CUBLAS_OP_N : CUBLAS_OP_T, CUBLAS_OP_N, shape.n,
                              shape.m, shape.k, &one, b[i], CUDA_R_16BF, is_kn ? shape.n : shape.k,
                              a[i], CUDA_R_16BF, shape.k, &zero, c, CUDA_R_16BF, shape.n,
                              CUBLAS_COMPUTE_32F, CUBLAS_GEMM_DEFAULT));
  }

  bool same() const {
    DifferenceCounter differences;
    differences.add(c_ours, c_theirs, uint64_t{shape.m} * shape.n,
                    1e-2f * std::sqrt(static_cast<float>(shape.k)) / 16, 1.f / 128);
    const unsigned long long count = differences.total();
    if (count != 0) std::printf("  WRONG: %llu elements differ from cuBLAS\n", count);
    return count == 0;
  }
};

// Keeps the GPU busy while the host enqueues what is timed, so that no host time is counted.
static __global__ void spin_kernel(uint32_t spin_us) {
  uint64_t from, now;
  asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(from));
  do {
    asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(now));
  } while (now - from < spin_us * uint64_t{1000});
}

/// One way to compute the product on operand set i.
struct Variant {
  std::string name;
  std::function<void(size_t)> run;
  std::vector<float> samples;
};

template <class Config>
void add_variants(std::vector<Variant>& variants, const Operands& operands, const char* name,
                  std::initializer_list<uint32_t> group_rows) {
  auto launch = std::make_shared<Launcher<Config>>();
  std::vector<GemmArguments> arguments;
  for (size_t i = 0; i < operands.num_sets(); ++i) arguments.push_back(operands.arguments(i));
  for (const uint32_t rows : group_rows) {
    const auto run = [=, m = operands.shape.m](size_t i) { (*launch)(arguments[i], m, 0, rows); };
    variants.push_back({std::string(name) + " g" + std::to_string(rows), run, {}});
  }
}

// Round robin over the variants, so that all see the same clocks. Without a pause between calls
// the GPU is at its power limit; with one it is less so.
inline void time_variants(std::vector<Variant>& variants, size_t num_sets, int pause_us) {
  constexpr size_t kWarmup = 3, kRuns = 25;
  cudaEvent_t from, to;
  CHECK_CUDA(cudaEventCreate(&from));
  CHECK_CUDA(cudaEventCreate(&to));
  for (size_t round = 0; round < kWarmup + kRuns; ++round) {
    for (size_t i = 0; i < variants.size(); ++i) {
      Variant& variant = variants[(i + round) % variants.size()];
      if (pause_us > 0) std::this_thread::sleep_for(std::chrono::microseconds(pause_us));
      spin_kernel<<<1, 1>>>(pause_us > 0 ? 400 : 60);
      CHECK_CUDA(cudaEventRecord(from));
      variant.run((round + i) % num_sets);
      CHECK_CUDA(cudaEventRecord(to));
      CHECK_CUDA(cudaEventSynchronize(to));
      float ms;
      CHECK_CUDA(cudaEventElapsedTime(&ms, from, to));
      if (round >= kWarmup) variant.samples.push_back(ms);
    }
  }
  CHECK_CUDA(cudaEventDestroy(from));
  CHECK_CUDA(cudaEventDestroy(to));
}

template <BLayout kLayout>
bool bench_shape(cublasHandle_t handle, const Shape& s, int pause_us) {
  const Operands operands(s, kLayout);
  constexpr DType kType = DType::kBf16;
  std::vector<Variant> variants;
  // Timed with the same output as ours: what a call finds of C in L2 is then the same for all.
  variants.push_back(
      {"cublas", [&](size_t i) { operands.cublas(handle, i, operands.c_ours); }, {}});
  add_variants<GemmConfig<kType, kLayout, 1>>(variants, operands, "cluster 1", {1024, 2048});
  add_variants<GemmConfig<kType, kLayout, 2>>(variants, operands, "cluster 2", {1024, 2048});
  add_variants<GemmConfig<kType, kLayout, 1, 128>>(variants, operands, "128x128", {1024, 2048});
  operands.cublas(handle, 0, operands.c_theirs);
  bool good = true;
  for (Variant& variant : variants) {  // every variant must be right, on set 0
    CHECK_CUDA(cudaMemset(operands.c_ours, 0xff, uint64_t{s.m} * s.n * 2));
    variant.run(0);
    good &= operands.same();
  }
  time_variants(variants, operands.num_sets(), pause_us);
  const double reference = quantiles_of(variants[0].samples).median;
  std::printf("%ux%ux%u %s, pause %d us\n", s.m, s.n, s.k, kLayout == BLayout::kKN ? "kn" : "nk",
              pause_us);
  for (const Variant& variant : variants) {
    const Quantiles q = quantiles_of(variant.samples);
    std::printf("  %-26s %.4f [%.4f %.4f] ms %4.0f TF  ratio %.3f\n", variant.name.c_str(),
                q.median, q.p10, q.p90, 2e-9 * s.m * s.n * s.k / q.median, reference / q.median);
  }
  return good;
}

inline bool bench_all() {
  cublasHandle_t handle;
  CHECK_CUBLAS(cublasCreate(&handle));
  bool good = true;
  for (const int pause_us : {0, 5000}) {
    // The first is one wave of either tile: the cost of a narrow one (schedule/tile_choice.h).
    for (const Shape& s :
         {Shape{2048, 1024, 8192}, Shape{8192, 4096, 8192}, Shape{4096, 4096, 4096},
          Shape{4096, 2048, 8192}, Shape{16384, 4096, 8192}}) {
      good &= bench_shape<BLayout::kKN>(handle, s, pause_us);
      good &= bench_shape<BLayout::kNK>(handle, s, pause_us);
    }
  }
  CHECK_CUBLAS(cublasDestroy(handle));
  return good;
}

}  // namespace mkernel::test
