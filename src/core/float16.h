// The 16-bit floating point formats as bit patterns, the same on the host and on a GPU: for tests,
// the host machine and the application. Not for speed; kernels convert with the hardware.
// Conversions from float round to nearest, ties to even; NaN stays NaN.
#pragma once
#include <bit>
#include <cstdint>

#include <mkernel/tensor.h>

#include "core/target.h"

namespace mkernel {

MK_HD float bf16_to_float(uint16_t bits) { return std::bit_cast<float>(uint32_t{bits} << 16); }

MK_HD uint16_t float_to_bf16(float value) {
  const auto bits = std::bit_cast<uint32_t>(value);
  // A NaN is not rounded: that could carry its fraction into the exponent, or lose it.
  if ((bits & 0x7fffffffu) > 0x7f800000u) return static_cast<uint16_t>((bits >> 16) | 0x40u);
  return static_cast<uint16_t>((bits + 0x7fffu + ((bits >> 16) & 1u)) >> 16);
}

MK_HD float fp16_to_float(uint16_t bits) {
  // Shifted into place, the exponent is 112 too small; a multiplication mends that, also for
  // subnormals. Infinity and NaN need the full exponent.
  const uint32_t sign = uint32_t{bits & 0x8000u} << 16;
  const uint32_t rest = uint32_t{bits & 0x7fffu} << 13;
  if (rest >= 0x0f800000u) return std::bit_cast<float>(sign | rest | 0x7f800000u);
  const float magnitude = std::bit_cast<float>(rest) * 0x1p112f;
  return std::bit_cast<float>(sign | std::bit_cast<uint32_t>(magnitude));
}

MK_HD uint16_t float_to_fp16(float value) {
  const auto bits = std::bit_cast<uint32_t>(value);
  const auto sign = static_cast<uint16_t>((bits >> 16) & 0x8000u);
  const uint32_t magnitude = bits & 0x7fffffffu;
  if (magnitude > 0x7f800000u) return static_cast<uint16_t>(sign | 0x7e00u);
  // 65520 is the tie between the largest number and 2^16, and goes to the even one: infinity.
  if (magnitude >= 0x477ff000u) return static_cast<uint16_t>(sign | 0x7c00u);
  if (magnitude < 0x38800000u) {
    // Below 2^-14: adding 0.5 makes the FPU round at the position of fp16's last subnormal bit.
    const float shifted = std::bit_cast<float>(magnitude) + 0.5f;
    return static_cast<uint16_t>(sign | (std::bit_cast<uint32_t>(shifted) - 0x3f000000u));
  }
  const uint32_t rounded = magnitude + 0xfffu + ((magnitude >> 13) & 1u) - 0x38000000u;
  return static_cast<uint16_t>(sign | (rounded >> 13));
}

MK_HD float to_float(uint16_t bits, DType dtype) {
  return dtype == DType::kBf16 ? bf16_to_float(bits) : fp16_to_float(bits);
}

MK_HD uint16_t from_float(float value, DType dtype) {
  return dtype == DType::kBf16 ? float_to_bf16(value) : float_to_fp16(value);
}

}  // namespace mkernel
