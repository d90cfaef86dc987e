// wgmma: matrix multiply by a warpgroup, operands in shared memory, fp32 sums in registers.
// One PTX instruction per function. The sums may be touched only after wgmma_wait; see
// wgmma_fence_registers.
#pragma once
#include <cstdint>

#include "mkernel/tensor.h"

namespace mkernel::ptx {

// A 64 x n product has n / 2 sums per thread: acc[4j + {0,1}] is row l/4, columns 8j + 2(l%4) +
// {0,1} of the warp's 16 rows (l = lane); acc[4j + {2,3}] is 8 rows below.

/// How an operand lies in shared memory: the upper half of its 64-bit descriptor.
/// `stride_bytes`: between groups of 8 rows (K-major operand) or of 8 k (MN-major operand).
__device__ __forceinline__ constexpr uint32_t wgmma_descriptor_high(uint32_t stride_bytes) {
  constexpr uint32_t kSwizzle128 = 1u << 30;
  return kSwizzle128 | (stride_bytes >> 4);
}

/// Where it lies: the lower half. Adding n moves the start by 16 n bytes.
/// `leading_bytes`: between 64-wide boxes of an MN-major operand; ignored for a K-major one.
__device__ __forceinline__ uint32_t wgmma_descriptor_low(uint32_t address, uint32_t leading_bytes) {
  return ((leading_bytes >> 4) << 16) | ((address & 0x3ffff) >> 4);
}

__device__ __forceinline__ uint64_t wgmma_descriptor(uint32_t low, uint32_t high) {
  uint64_t descriptor;
  asm("mov.b64 %0, {%1, %2};" : "=l"(descriptor) : "r"(low), "r"(high));
  return descriptor;
}

/// Orders register writes (first use of the sums) before the wgmmas that follow.
__device__ __forceinline__ void wgmma_fence() {
  asm volatile("wgmma.fence.sync.aligned;" ::: "memory");
}

__device__ __forceinline__ void wgmma_commit() {
  asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory");
}

/// Until at most `kPending` groups of this warp are still running.
template <int kPending>
__device__ __forceinline__ void wgmma_wait() {
  asm volatile("wgmma.wait_group.sync.aligned %0;" ::"n"(kPending) : "memory");
}

/// No instruction: keeps the compiler from moving uses of the sums across this point, since it
/// does not know that the tensor cores write them until wgmma_wait.
template <int kSums>
__device__ __forceinline__ void wgmma_fence_registers(float (&acc)[kSums]) {
#pragma unroll
  for (int i = 0; i < kSums; ++i) asm volatile("" : "+f"(acc[i])::"memory");
}

// Element types and n are part of the instruction's name, and its sums are single operands: only
// macros can share them. The operands behind the sums are numbered from the number of sums.
#define MK_SUMS_8(I)                                                                    \
  "+f"(acc[I]), "+f"(acc[I + 1]), "+f"(acc[I + 2]), "+f"(acc[I + 3]), "+f"(acc[I + 4]), \
      "+f"(acc[I + 5]), "+f"(acc[I + 6]), "+f"(acc[I + 7])
#define MK_SUMS_32(I) MK_SUMS_8(I), MK_SUMS_8(I + 8), MK_SUMS_8(I + 16), MK_SUMS_8(I + 24)
#define MK_SUMS_64 MK_SUMS_32(0), MK_SUMS_32(32)
#define MK_SUMS_128 MK_SUMS_64, MK_SUMS_32(64), MK_SUMS_32(96)
#define MK_NAMES_64                                              \
  "%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, "           \
  "%12, %13, %14, %15, %16, %17, %18, %19, %20, %21, %22, %23, " \
  "%24, %25, %26, %27, %28, %29, %30, %31, %32, %33, %34, %35, " \
  "%36, %37, %38, %39, %40, %41, %42, %43, %44, %45, %46, %47, " \
  "%48, %49, %50, %51, %52, %53, %54, %55, %56, %57, %58, %59, " \
  "%60, %61, %62, %63"
#define MK_NAMES_128                                                         \
  MK_NAMES_64                                                                \
  ", %64, %65, %66, %67, %68, %69, %70, %71, "                               \
  "%72, %73, %74, %75, %76, %77, %78, %79, %80, %81, %82, %83, "             \
  "%84, %85, %86, %87, %88, %89, %90, %91, %92, %93, %94, %95, "             \
  "%96, %97, %98, %99, %100, %101, %102, %103, %104, %105, %106, %107, "     \
  "%108, %109, %110, %111, %112, %113, %114, %115, %116, %117, %118, %119, " \
  "%120, %121, %122, %123, %124, %125, %126, %127"
#define MK_WGMMA(SHAPE, TYPES, NAMES, SUMS, A, B, ACCUMULATE, TRANSPOSE)                      \
  asm volatile("{\n .reg .pred p;\n setp.ne.b32 p, " ACCUMULATE                               \
               ", 0;\n"                                                                       \
               " wgmma.mma_async.sync.aligned." SHAPE ".f32." TYPES " {" NAMES "}, " A ", " B \
               ", p, 1, 1, 0, " TRANSPOSE ";\n}"                                              \
               : SUMS                                                                         \
               : "l"(a), "l"(b), "r"(accumulate), "n"(kTransposeB ? 1 : 0))
#define MK_WGMMA_N256(TYPES) \
  MK_WGMMA("m64n256k16", TYPES, MK_NAMES_128, MK_SUMS_128, "%128", "%129", "%130", "%131")
#define MK_WGMMA_N128(TYPES) \
  MK_WGMMA("m64n128k16", TYPES, MK_NAMES_64, MK_SUMS_64, "%64", "%65", "%66", "%67")

/// acc = A[64, 16] * B[16, 2 * kSums] (+ acc if `accumulate`); kTransposeB: B lies N-major.
template <DType kType, bool kTransposeB, int kSums>
__device__ __forceinline__ void wgmma_m64k16(float (&acc)[kSums], uint64_t a, uint64_t b,
                                             uint32_t accumulate) {
  static_assert(kSums == 128 || kSums == 64, "n = 256 or 128");
  constexpr bool kIsBf16 = kType == DType::kBf16;
  if constexpr (kSums == 128 && kIsBf16) {
    MK_WGMMA_N256("bf16.bf16");
  } else if constexpr (kSums == 128) {
    MK_WGMMA_N256("f16.f16");
  } else if constexpr (kIsBf16) {
    MK_WGMMA_N128("bf16.bf16");
  } else {
    MK_WGMMA_N128("f16.f16");
  }
}

#undef MK_WGMMA_N128
#undef MK_WGMMA_N256
#undef MK_WGMMA
#undef MK_NAMES_128
#undef MK_NAMES_64
#undef MK_SUMS_128
#undef MK_SUMS_64
#undef MK_SUMS_32
#undef MK_SUMS_8

}  // namespace mkernel::ptx
