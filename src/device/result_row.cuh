// The last step of a sum over many ranks: four neighbours are finished and stored, to C and to
// other ranks. Any alignment and any edge: where a vector does not fit, element by element.
#pragma once
#include <cstdint>

#include "device/packed.cuh"
#include "protocol/tile_output.h"

namespace mkernel {

__device__ __forceinline__ float activated(float x, Activation activation) {
  switch (activation) {
    case Activation::kNone: break;
    case Activation::kRelu: return x < 0 ? 0 : x;  // a NaN stays one
    case Activation::kGelu: return 0.5f * x * (1 + erff(x * 0.70710678f));
    case Activation::kSilu: return x / (1 + expf(-x));
  }
  return x;
}

/// `count` elements of `from`, up to four; 0 beyond.
template <DType kType>
__device__ __forceinline__ float4 load_four(const char* from, uint32_t count) {
  uint2 pairs = make_uint2(0, 0);
  if (count == 4 && reinterpret_cast<uintptr_t>(from) % sizeof pairs == 0) {
    pairs = *reinterpret_cast<const uint2*>(from);
  } else {
    const auto* one = reinterpret_cast<const uint16_t*>(from);
    pairs.x = one[0];
    if (count > 1) pairs.x |= uint32_t{one[1]} << 16;
    if (count > 2) pairs.y = one[2];
    if (count > 3) pairs.y |= uint32_t{one[3]} << 16;
  }
  return unpack_two<kType>(pairs.x, pairs.y);
}

__device__ __forceinline__ void store_floats(char* to, const float4& x, uint32_t count) {
  if (count == 4 && reinterpret_cast<uintptr_t>(to) % sizeof x == 0) {
    *reinterpret_cast<float4*>(to) = x;
    return;
  }
  auto* one = reinterpret_cast<float*>(to);
  one[0] = x.x;
  if (count > 1) one[1] = x.y;
  if (count > 2) one[2] = x.z;
  if (count > 3) one[3] = x.w;
}

template <DType kType>
__device__ __forceinline__ void store_rounded(char* to, const float4& x, uint32_t count) {
  const uint2 pairs = make_uint2(pack_pair<kType>(x.x, x.y), pack_pair<kType>(x.z, x.w));
  if (count == 4 && reinterpret_cast<uintptr_t>(to) % sizeof pairs == 0) {
    *reinterpret_cast<uint2*>(to) = pairs;
    return;
  }
  auto* one = reinterpret_cast<uint16_t*>(to);
  one[0] = static_cast<uint16_t>(pairs.x);
  if (count > 1) one[1] = static_cast<uint16_t>(pairs.x >> 16);
  if (count > 2) one[2] = static_cast<uint16_t>(pairs.y);
  if (count > 3) one[3] = static_cast<uint16_t>(pairs.y >> 16);
}

/// Finishes and stores the sums at (row, col ..) of a tile; no more of them than the tile has.
template <DType kType>
__device__ __forceinline__ void write_result(const TileSums& s, char* const* peer_slots,
                                             const TileOutput& out, uint32_t row, uint32_t col,
                                             float4 x) {
  const uint32_t count = min(4u, out.cols - col);
  x = make_float4(s.alpha * x.x, s.alpha * x.y, s.alpha * x.z, s.alpha * x.w);
  if (out.bias != nullptr) x = x + load_four<kType>(out.bias + col * kElementBytes, count);
  if (out.residual != nullptr)
    x = x + load_four<kType>(out.residual + row * s.residual_pitch + col * kElementBytes, count);
  x = make_float4(activated(x.x, s.activation), activated(x.y, s.activation),
                  activated(x.z, s.activation), activated(x.w, s.activation));
  const auto store = [&](char* to) {
    if (s.output == Output::kFp32)
      store_floats(to, x, count);
    else
      store_rounded<kType>(to, x, count);
  };
  const uint32_t element = s.result_element();
  store(out.c + row * s.c_pitch + col * element);
  if (!out.copies) return;
  const uint64_t offset =
      out.result_offset + uint64_t{row} * s.result_pitch(out.cols) + col * element;
#pragma unroll 1
  for (uint32_t gpu = 0; gpu < s.gpus; ++gpu)
    if (s.copies_to(gpu)) store(peer_slots[gpu] + offset);
}

}  // namespace mkernel
