// stmatrix: a warp stores four 8x8 matrices of 2-byte elements from the MMA register layout.
#pragma once
#include <cstdint>

namespace mkernel::ptx {

/// Lane l gives the address of row l % 8 of matrix l / 8 (16 bytes, aligned).
__device__ __forceinline__ void stmatrix_x4(uint32_t address, uint32_t m0, uint32_t m1, uint32_t m2,
                                            uint32_t m3) {
  asm volatile("stmatrix.sync.aligned.m8n8.x4.shared.b16 [%0], {%1, %2, %3, %4};" ::"r"(address),
               "r"(m0), "r"(m1), "r"(m2), "r"(m3)
               : "memory");
}

}  // namespace mkernel::ptx
