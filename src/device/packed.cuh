// Sums as they are stored: pairs of a 16-bit type, vectors of four.
#pragma once
#include <cuda_bf16.h>
#include <cuda_fp16.h>

#include <cstdint>

#include "mkernel/tensor.h"

namespace mkernel {

/// Two sums rounded to nearest even and packed, `low` in the lower half.
template <DType kType>
__device__ __forceinline__ uint32_t pack_pair(float low, float high) {
  if constexpr (kType == DType::kBf16) {
    const __nv_bfloat162 pair = __floats2bfloat162_rn(low, high);
    return reinterpret_cast<const uint32_t&>(pair);
  } else {
    const __half2 pair = __floats2half2_rn(low, high);
    return reinterpret_cast<const uint32_t&>(pair);
  }
}

template <DType kType>
__device__ __forceinline__ float2 unpack_pair(uint32_t pair) {
  if constexpr (kType == DType::kBf16)
    return make_float2(__uint_as_float(pair << 16), __uint_as_float(pair & 0xffff0000u));
  else
    return __half22float2(reinterpret_cast<const __half2&>(pair));
}

/// Two packed pairs.
template <DType kType>
__device__ __forceinline__ float4 unpack_two(uint32_t first, uint32_t second) {
  const float2 low = unpack_pair<kType>(first), high = unpack_pair<kType>(second);
  return make_float4(low.x, low.y, high.x, high.y);
}

__device__ __forceinline__ uint4 as_words(const float4& x) {
  return make_uint4(__float_as_uint(x.x), __float_as_uint(x.y), __float_as_uint(x.z),
                    __float_as_uint(x.w));
}
__device__ __forceinline__ float4 as_floats(const uint4& x) {
  return make_float4(__uint_as_float(x.x), __uint_as_float(x.y), __uint_as_float(x.z),
                     __uint_as_float(x.w));
}
__device__ __forceinline__ float4 operator+(const float4& a, const float4& b) {
  return make_float4(a.x + b.x, a.y + b.y, a.z + b.z, a.w + b.w);
}

}  // namespace mkernel
