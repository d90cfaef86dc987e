// wgmma: matrix multiply by a warpgroup, operands in shared memory, fp32 sums in registers.
// One PTX instruction per function. The sums may be touched only after wgmma_wait; see
// wgmma_fence_registers.
#pragma once
#include <cstdint>

#include "mkernel/tensor.h"

namespace mkernel::ptx {

/// Sums per thread of one 64x256 product: acc[4j + {0,1}] is row l/4, columns 8j + 2(l%4) + {0,1}
/// of the warp's 16 rows (l = lane); acc[4j + {2,3}] is 8 rows below.
inline constexpr int kWgmmaSums = 128;

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
__device__ __forceinline__ void wgmma_fence_registers(float (&acc)[kWgmmaSums]) {
#pragma unroll
  for (int i = 0; i < kWgmmaSums; ++i) asm volatile("" : "+f"(acc[i])::"memory");
}

// One instruction for both element types, whose names are part of it: only a macro can share its
// 128 operands.
#define MK_WGMMA_M64N256K16(TYPES)                                                                \
  asm volatile(                                                                                   \
      "{\n .reg .pred p;\n setp.ne.b32 p, %130, 0;\n"                                             \
      " wgmma.mma_async.sync.aligned.m64n256k16.f32." TYPES                                       \
      " {"                                                                                        \
      "%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, "                                        \
      "%12, %13, %14, %15, %16, %17, %18, %19, %20, %21, %22, %23, "                              \
      "%24, %25, %26, %27, %28, %29, %30, %31, %32, %33, %34, %35, "                              \
      "%36, %37, %38, %39, %40, %41, %42, %43, %44, %45, %46, %47, "                              \
      "%48, %49, %50, %51, %52, %53, %54, %55, %56, %57, %58, %59, "                              \
      "%60, %61, %62, %63, %64, %65, %66, %67, %68, %69, %70, %71, "                              \
      "%72, %73, %74, %75, %76, %77, %78, %79, %80, %81, %82, %83, "                              \
      "%84, %85, %86, %87, %88, %89, %90, %91, %92, %93, %94, %95, "                              \
      "%96, %97, %98, %99, %100, %101, %102, %103, %104, %105, %106, %107, "                      \
      "%108, %109, %110, %111, %112, %113, %114, %115, %116, %117, %118, %119, "                  \
      "%120, %121, %122, %123, %124, %125, %126, %127}, "                                         \
      "%128, %129, p, 1, 1, 0, %131;\n}"                                                          \
      : "+f"(acc[0]), "+f"(acc[1]), "+f"(acc[2]), "+f"(acc[3]), "+f"(acc[4]), "+f"(acc[5]),       \
        "+f"(acc[6]), "+f"(acc[7]), "+f"(acc[8]), "+f"(acc[9]), "+f"(acc[10]), "+f"(acc[11]),     \
        "+f"(acc[12]), "+f"(acc[13]), "+f"(acc[14]), "+f"(acc[15]), "+f"(acc[16]), "+f"(acc[17]), \
        "+f"(acc[18]), "+f"(acc[19]), "+f"(acc[20]), "+f"(acc[21]), "+f"(acc[22]), "+f"(acc[23]), \
        "+f"(acc[24]), "+f"(acc[25]), "+f"(acc[26]), "+f"(acc[27]), "+f"(acc[28]), "+f"(acc[29]), \
        "+f"(acc[30]), "+f"(acc[31]), "+f"(acc[32]), "+f"(acc[33]), "+f"(acc[34]), "+f"(acc[35]), \
        "+f"(acc[36]), "+f"(acc[37]), "+f"(acc[38]), "+f"(acc[39]), "+f"(acc[40]), "+f"(acc[41]), \
        "+f"(acc[42]), "+f"(acc[43]), "+f"(acc[44]), "+f"(acc[45]), "+f"(acc[46]), "+f"(acc[47]), \
        "+f"(acc[48]), "+f"(acc[49]), "+f"(acc[50]), "+f"(acc[51]), "+f"(acc[52]), "+f"(acc[53]), \
        "+f"(acc[54]), "+f"(acc[55]), "+f"(acc[56]), "+f"(acc[57]), "+f"(acc[58]), "+f"(acc[59]), \
        "+f"(acc[60]), "+f"(acc[61]), "+f"(acc[62]), "+f"(acc[63]), "+f"(acc[64]), "+f"(acc[65]), \
        "+f"(acc[66]), "+f"(acc[67]), "+f"(acc[68]), "+f"(acc[69]), "+f"(acc[70]), "+f"(acc[71]), \
        "+f"(acc[72]), "+f"(acc[73]), "+f"(acc[74]), "+f"(acc[75]), "+f"(acc[76]), "+f"(acc[77]), \
        "+f"(acc[78]), "+f"(acc[79]), "+f"(acc[80]), "+f"(acc[81]), "+f"(acc[82]), "+f"(acc[83]), \
        "+f"(acc[84]), "+f"(acc[85]), "+f"(acc[86]), "+f"(acc[87]), "+f"(acc[88]), "+f"(acc[89]), \
        "+f"(acc[90]), "+f"(acc[91]), "+f"(acc[92]), "+f"(acc[93]), "+f"(acc[94]), "+f"(acc[95]), \
        "+f"(acc[96]), "+f"(acc[97]), "+f"(acc[98]), "+f"(acc[99]), "+f"(acc[100]),               \
        "+f"(acc[101]), "+f"(acc[102]), "+f"(acc[103]), "+f"(acc[104]), "+f"(acc[105]),           \
        "+f"(acc[106]), "+f"(acc[107]), "+f"(acc[108]), "+f"(acc[109]), "+f"(acc[110]),           \
        "+f"(acc[111]), "+f"(acc[112]), "+f"(acc[113]), "+f"(acc[114]), "+f"(acc[115]),           \
        "+f"(acc[116]), "+f"(acc[117]), "+f"(acc[118]), "+f"(acc[119]), "+f"(acc[120]),           \
        "+f"(acc[121]), "+f"(acc[122]), "+f"(acc[123]), "+f"(acc[124]), "+f"(acc[125]),           \
        "+f"(acc[126]), "+f"(acc[127])                                                            \
      : "l"(a), "l"(b), "r"(accumulate), "n"(kTransposeB ? 1 : 0))

/// acc = A[64, 16] * B[16, 256] (+ acc if `accumulate`); kTransposeB: B lies N-major.
template <DType kType, bool kTransposeB>
__device__ __forceinline__ void wgmma_m64n256k16(float (&acc)[kWgmmaSums], uint64_t a, uint64_t b,
                                                 uint32_t accumulate) {
  if constexpr (kType == DType::kBf16) {
    MK_WGMMA_M64N256K16("bf16.bf16");
  } else {
    MK_WGMMA_M64N256K16("f16.f16");
  }
}

#undef MK_WGMMA_M64N256K16

}  // namespace mkernel::ptx
