// Checks and times the GEMM main loop by itself on one GPU.
//   gemm_core check [seed]   ragged shapes against an fp64 reference, all instances
//   gemm_core bench          against cuBLAS, in alternation
// Exit status 0 only if everything that ran was right.
#include <cstring>
#include <random>
#include <vector>

#include "device/kernels/repack.h"
#include "gemm_core_bench.cuh"
#include "gemm_core_common.cuh"

namespace mkernel::test {
namespace {

struct Case {
  uint32_t m, n, k;
  uint32_t rows0;     // of A in source 0
  uint32_t c_pad;     // ldc - n
  uint32_t c_offset;  // elements, misaligns C
};

Mismatch read_mismatch(Mismatch* on_device) {
  Mismatch mismatch;
  CHECK_CUDA(cudaMemcpy(&mismatch, on_device, sizeof(mismatch), cudaMemcpyDeviceToHost));
  CHECK_CUDA(cudaFree(on_device));
  return mismatch;
}

template <class Config>
bool check_case(Launcher<Config>& launch, const Case& t, uint64_t seed, bool integers) {
  constexpr bool kIsKn = Config::kBLayout == BLayout::kKN;
  const uint64_t lda = round_up_8(t.k), ldc = t.n + t.c_pad;
  const uint64_t b_rows = kIsKn ? t.k : t.n, b_cols = kIsKn ? t.n : t.k, ldb = round_up_8(b_cols);
  uint16_t *a = device_words(t.m * lda), *b = device_words(b_rows * ldb);
  uint16_t* c_base = device_words(t.m * ldc + t.c_offset);
  uint16_t* c = c_base + t.c_offset;
  fill_kernel<Config::kType><<<256, 256>>>(a, t.m, t.k, lda, seed, integers);
  fill_kernel<Config::kType><<<256, 256>>>(b, b_rows, b_cols, ldb, seed + 1, integers);
  CHECK_CUDA(cudaMemset(c_base, 0xff, (t.m * ldc + t.c_offset) * 2));

  const Matrix sources[] = {matrix_of(a, t.rows0, t.k, lda),
                            matrix_of(a + t.rows0 * lda, t.m - t.rows0, t.k, lda)};
  const Result<GemmArguments> arguments =
      make_gemm_arguments({sources, matrix_of(b, b_rows, b_cols, ldb), matrix_of(c, t.m, t.n, ldc),
                           Config::kBLayout, Config::kType});
  if (!arguments) {
    std::printf("%s\n", arguments.status().message().c_str());
    return false;
  }
  launch(arguments.value(), t.rows0, t.m - t.rows0, 512);

  Mismatch* result;
  CHECK_CUDA(cudaMalloc(&result, sizeof(*result)));
  CHECK_CUDA(cudaMemset(result, 0, sizeof(*result)));
  const uint32_t blocks = static_cast<uint32_t>((t.m * ldc + 255) / 256);
  check_kernel<Config::kType>
      <<<blocks, 256>>>({a, b, c, lda, ldb, ldc, t.m, t.n, t.k, kIsKn, integers}, result);
  CHECK_CUDA(cudaDeviceSynchronize());
  const Mismatch mismatch = read_mismatch(result);
  for (uint16_t* p : {a, b, c_base}) CHECK_CUDA(cudaFree(p));
  if (mismatch.count == 0) return true;
  std::printf(
      "  WRONG m %u n %u k %u rows0 %u c_pad %u c_offset %u %s: %llu of %llu, first at row "
      "%llu col %llu, error/tolerance %g\n",
      t.m, t.n, t.k, t.rows0, t.c_pad, t.c_offset, integers ? "integers" : "normal", mismatch.count,
      static_cast<unsigned long long>(t.m) * t.n, mismatch.first / ldc, mismatch.first % ldc,
      mismatch.worst);
  return false;
}

std::vector<Case> make_cases(uint64_t seed) {
  std::vector<Case> cases = {
      {1, 1, 1, 1, 0, 0},
      {1, 256, 64, 1, 0, 0},
      {128, 256, 64, 128, 0, 0},
      {256, 256, 128, 256, 0, 0},
      {128, 256, 1, 128, 0, 0},
      {7, 257, 63, 3, 0, 0},
      {129, 127, 65, 129, 2, 0},
      {257, 513, 127, 100, 1, 1},
      {1000, 1016, 520, 1000, 0, 0},
      {1111, 1030, 1033, 777, 3, 5},
      {2048, 2048, 512, 640, 0, 0},
      {3000, 2200, 264, 1500, 8, 8},
      {700, 1300, 1400, 300, 4, 0},
      {640, 2050, 321, 640, 6, 0},
      {500, 1500, 320, 129, 4, 0},
  };
  std::mt19937_64 random(seed);
  constexpr uint32_t kSizes[] = {1,   7,   8,   16,  63,  64,  65,  127, 128, 129,
                                 192, 255, 256, 257, 300, 511, 513, 640, 777};
  const auto pick = [&] { return kSizes[random() % std::size(kSizes)]; };
  while (cases.size() < 44) {
    Case t{pick(), pick(), pick(), 0, 0, 0};
    t.rows0 = static_cast<uint32_t>(random() % (t.m + 1));
    const bool aligned = random() % 2 == 0;
    t.c_pad = static_cast<uint32_t>(aligned ? round_up_8(t.n) - t.n : random() % 9);
    t.c_offset = static_cast<uint32_t>(aligned ? 0 : random() % 8);
    cases.push_back(t);
  }
  return cases;
}

template <class Config>
bool check_config(const char* name, uint64_t seed) {
  Launcher<Config> launch;
  const int num_clusters = launch.num_clusters;
  int good = 0, total = 0;
  for (const Case& t : make_cases(seed)) {
    for (const bool integers : {true, false}) {
      // Few clusters: many tiles for each, so that rings and slots wrap around.
      launch.num_clusters = total % 4 < 2 ? num_clusters : 3;
      good += check_case(launch, t, seed + 17 * total, integers);
      ++total;
    }
  }
  std::printf("check %-22s %d of %d right (seed %llu)\n", name, good, total,
              static_cast<unsigned long long>(seed));
  return good == total;
}

// The same product again and again must give the same bits: a missing wait would show. First, the
// one that the others are held against, may have other tiles: no tuning changes results.
template <class Config, class First = Config>
bool check_repeat() {
  constexpr uint32_t kM = 1500, kN = 1544, kK = 520, kRepeats = 100;
  uint16_t *a = device_words(kM * kK), *b = device_words(kN * kK), *c[2];
  fill_kernel<Config::kType><<<256, 256>>>(a, kM, kK, kK, 5, false);
  fill_kernel<Config::kType><<<256, 256>>>(b, kN, kK, kK, 6, false);
  const Matrix sources[] = {matrix_of(a, 700, kK, kK), matrix_of(a + 700 * kK, kM - 700, kK, kK)};
  Launcher<First> launch_first;
  Launcher<Config> launch;
  DifferenceCounter differences;
  for (uint32_t i = 0; i < kRepeats; ++i) {
    const int which = i == 0 ? 0 : 1;
    if (i < 2) c[which] = device_words(kM * kN);
    const Matrix b_matrix =
        Config::kBLayout == BLayout::kKN ? matrix_of(b, kK, kN, kN) : matrix_of(b, kN, kK, kK);
    const auto arguments = make_gemm_arguments(
        {sources, b_matrix, matrix_of(c[which], kM, kN, kN), Config::kBLayout, Config::kType});
    CHECK_CUDA(cudaMemsetAsync(c[which], 0xff, kM * kN * 2));
    if (i == 0)
      launch_first(arguments.value(), 700, kM - 700, 512);
    else
      launch(arguments.value(), 700, kM - 700, 512);
    if (i > 0) differences.add(c[1], c[0], kM * kN, 0, 0);
  }
  const bool good = differences.total() == 0;
  std::printf("check %u repeats: %s\n", kRepeats, good ? "same bits" : "DIFFERENT");
  for (uint16_t* p : {a, b, c[0], c[1]}) CHECK_CUDA(cudaFree(p));
  return good;
}

bool check_repack() {
  bool good = true;
  for (const uint32_t cols : {1u, 7u, 8u, 65u, 1000u}) {
    constexpr uint32_t kRows = 37;
    const uint64_t source_ld = cols + 3, target_ld = round_up_8(cols);
    uint16_t* source = device_words(kRows * source_ld + 1);
    uint16_t* target = device_words(kRows * target_ld);
    fill_kernel<DType::kBf16><<<64, 256>>>(source + 1, kRows, cols, source_ld, cols, false);
    CHECK_CUDA(launch_repack({source + 1, source_ld, target, target_ld, kRows, cols}, nullptr));
    std::vector<uint16_t> from(kRows * source_ld), to(kRows * target_ld);
    CHECK_CUDA(cudaMemcpy(from.data(), source + 1, from.size() * 2, cudaMemcpyDeviceToHost));
    CHECK_CUDA(cudaMemcpy(to.data(), target, to.size() * 2, cudaMemcpyDeviceToHost));
    for (uint32_t i = 0; i < kRows; ++i) {
      good &= std::memcmp(&from[i * source_ld], &to[i * target_ld], cols * 2) == 0;
    }
    for (uint16_t* p : {source, target}) CHECK_CUDA(cudaFree(p));
  }
  std::printf("check repack %s\n", good ? "right" : "WRONG");
  return good;
}

bool check_all(uint64_t seed) {
  using enum DType;
  using enum BLayout;
  bool good = check_repack();
  good &= check_repeat<GemmConfig<kBf16, kKN, 1>>();
  good &= check_repeat<GemmConfig<kBf16, kNK, 2>>();
  good &= check_repeat<GemmConfig<kBf16, kKN, 1, 128>, GemmConfig<kBf16, kKN, 1>>();
  good &= check_repeat<GemmConfig<kBf16, kNK, 1, 128>, GemmConfig<kBf16, kNK, 1>>();
  good &= check_config<GemmConfig<kBf16, kKN, 1>>("bf16 kn cluster 1", seed);
  good &= check_config<GemmConfig<kBf16, kNK, 1>>("bf16 nk cluster 1", seed + 1);
  good &= check_config<GemmConfig<kFp16, kKN, 1>>("fp16 kn cluster 1", seed + 2);
  good &= check_config<GemmConfig<kFp16, kNK, 1>>("fp16 nk cluster 1", seed + 3);
  good &= check_config<GemmConfig<kBf16, kKN, 2>>("bf16 kn cluster 2", seed + 4);
  good &= check_config<GemmConfig<kBf16, kNK, 2>>("bf16 nk cluster 2", seed + 5);
  good &= check_config<GemmConfig<kFp16, kKN, 2>>("fp16 kn cluster 2", seed + 6);
  good &= check_config<GemmConfig<kFp16, kNK, 2>>("fp16 nk cluster 2", seed + 7);
  good &= check_config<GemmConfig<kBf16, kKN, 1, 128>>("bf16 kn 128x128", seed + 8);
  good &= check_config<GemmConfig<kBf16, kNK, 1, 128>>("bf16 nk 128x128", seed + 9);
  good &= check_config<GemmConfig<kFp16, kKN, 1, 128>>("fp16 kn 128x128", seed + 10);
  good &= check_config<GemmConfig<kFp16, kNK, 1, 128>>("fp16 nk 128x128", seed + 11);
  return good;
}

}  // namespace
}  // namespace mkernel::test

int main(int argc, char** argv) {
  const bool is_bench = argc > 1 && std::strcmp(argv[1], "bench") == 0;
  const uint64_t seed = argc > 2 ? std::strtoull(argv[2], nullptr, 10) : 1;
  const bool good = is_bench ? mkernel::test::bench_all() : mkernel::test::check_all(seed);
  std::printf("%s\n", good ? "ALL RIGHT" : "FAILED");
  return good ? 0 : 1;
}
