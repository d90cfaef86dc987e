// bf16 and fp16 as bit patterns, rounded to nearest even: the one place where the application and
// its tests turn floats into elements. Not for speed; the library has its own conversions.
#pragma once
#include <bit>
#include <cstdint>

#include <mkernel/tensor.h>

#include "core/target.h"

namespace mkernel::app {

MK_HD float bf16_to_float(uint16_t bits) {
  return std::bit_cast<float>(static_cast<uint32_t>(bits) << 16);
}

MK_HD uint16_t float_to_bf16(float value) {
  const uint32_t x = std::bit_cast<uint32_t>(value);
  // A NaN stays one: rounding could carry its fraction into the exponent, or lose it.
  if ((x & 0x7fffffffu) > 0x7f800000u) return static_cast<uint16_t>(x >> 16 | 0x40u);
  return static_cast<uint16_t>((x + 0x7fffu + (x >> 16 & 1u)) >> 16);
}

MK_HD float fp16_to_float(uint16_t bits) {
  const uint32_t sign = static_cast<uint32_t>(bits & 0x8000u) << 16;
  const uint32_t exponent = bits >> 10 & 31u;
  const uint32_t fraction = bits & 1023u;
  if (exponent == 31) return std::bit_cast<float>(sign | 0x7f800000u | fraction << 13);
  if (exponent != 0) return std::bit_cast<float>(sign | (exponent + 112) << 23 | fraction << 13);
  const float magnitude = static_cast<float>(fraction) * 0x1p-24f;  // zero or subnormal
  return std::bit_cast<float>(sign | std::bit_cast<uint32_t>(magnitude));
}

MK_HD uint16_t float_to_fp16(float value) {
  const uint32_t x = std::bit_cast<uint32_t>(value);
  const uint32_t sign = x >> 16 & 0x8000u;
  uint32_t magnitude = x & 0x7fffffffu;
  if (magnitude > 0x7f800000u) return static_cast<uint16_t>(sign | 0x7e00u);
  // 65520 is the tie between the largest number and 2^16, and goes to the even one: infinity.
  if (magnitude >= 0x477ff000u) return static_cast<uint16_t>(sign | 0x7c00u);
  if (magnitude < 0x38800000u) {
    // Below 2^-14: added to 0.5, whose ulp is the subnormal step 2^-24, the adder rounds for us.
    const float shifted = std::bit_cast<float>(magnitude) + 0.5f;
    return static_cast<uint16_t>(sign | (std::bit_cast<uint32_t>(shifted) - 0x3f000000u));
  }
  magnitude += 0xfffu + (magnitude >> 13 & 1u);
  return static_cast<uint16_t>(sign | (magnitude - 0x38000000u) >> 13);
}

MK_HD float to_float(DType dtype, uint16_t bits) {
  return dtype == DType::kBf16 ? bf16_to_float(bits) : fp16_to_float(bits);
}

MK_HD uint16_t to_bits(DType dtype, float value) {
  return dtype == DType::kBf16 ? float_to_bf16(value) : float_to_fp16(value);
}

/// A quiet NaN: what outputs hold before a run, so that an element nobody wrote is found.
MK_HD uint16_t nan_bits(DType dtype) {
  return static_cast<uint16_t>(dtype == DType::kBf16 ? 0x7fc0u : 0x7e00u);
}

}  // namespace mkernel::app
