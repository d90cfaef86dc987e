// What the host machine does with the sums of a tile that many ranks have a part in. In work space
// a tile lies row by row, without padding.
#include <cmath>
#include <cstring>

#include "core/float16.h"
#include "host/host_gemm.h"

namespace mkernel {
namespace {

float rounded(float value, const TileSums& s) {
  if (s.partials == Partials::kFp32) return value;
  return to_float(from_float(value, s.dtype), s.dtype);
}

void write_element(char* to, float value, bool fp32, DType dtype) {
  const uint16_t bits = fp32 ? 0 : from_float(value, dtype);
  std::memcpy(to, fp32 ? static_cast<const void*>(&value) : &bits,
              fp32 ? sizeof value : sizeof bits);
}

float read_element(const char* from, uint64_t i, bool fp32, DType dtype) {
  float value = 0;
  uint16_t bits = 0;
  if (fp32) {
    std::memcpy(&value, from + i * sizeof value, sizeof value);
    return value;
  }
  std::memcpy(&bits, from + i * sizeof bits, sizeof bits);
  return to_float(bits, dtype);
}

/// The i-th element of a sum over `count` terms in their order. This one's own is `own`, the others
/// lie `stride` apart.
float sum_in_order(float own, uint32_t count, uint32_t self, const char* others, uint64_t stride,
                   size_t i, const TileSums& s) {
  if (count == 1) return own;
  own = rounded(own, s);
  float sum = 0;
  for (uint32_t term = 0; term < count; ++term) {
    const float value = term == self ? own
                                     : read_element(others + among_others(term, self) * stride, i,
                                                    s.partials == Partials::kFp32, s.dtype);
    sum = term == 0 ? value : sum + value;
  }
  return sum;
}

float activated(float x, Activation activation) {
  switch (activation) {
    case Activation::kNone: break;
    case Activation::kRelu: return x > 0 ? x : x == x ? 0 : x;
    case Activation::kGelu: return 0.5f * x * (1 + std::erf(x * 0.70710678f));
    case Activation::kSilu: return x / (1 + std::exp(-x));
  }
  return x;
}

float finished(float sum, const TileOutput& out, uint32_t row, uint32_t col, const TileSums& s) {
  float x = s.alpha * sum;
  if (out.bias != nullptr) x += read_element(out.bias, col, false, s.dtype);
  if (out.residual != nullptr)
    x += read_element(out.residual + row * s.residual_pitch, col, false, s.dtype);
  return activated(x, s.activation);
}

}  // namespace

void HostGemm::store(const TileOutput& out, const HostTile& tile_sums) const {
  using Kind = TileOutput::Kind;
  if (out.kind == Kind::kNone) return;
  const TileSums& s = *sums;
  const bool fp32_partials = s.partials == Partials::kFp32, fp32_c = s.output == Output::kFp32;
  for (uint32_t row = 0; row < out.rows; ++row)
    for (uint32_t col = 0; col < out.cols; ++col) {
      const size_t i = size_t{row} * out.cols + col;
      float x = tile_sums[i];
      if (out.kind != Kind::kPartial)
        x = sum_in_order(x, s.gpus, s.gpu, out.partials, s.partial_stride, i, s);
      if (out.kind != Kind::kResult) {
        write_element(out.to + i * s.partial_element(), x, fp32_partials, s.dtype);
        continue;
      }
      x = sum_in_order(x, s.nodes, s.node, out.sums, s.sum_stride, i, s);
      x = finished(x, out, row, col, s);
      write_element(out.c + row * s.c_pitch + col * s.result_element(), x, fp32_c, s.dtype);
      for (uint32_t gpu = 0; out.copies && gpu < s.gpus; ++gpu)
        if (s.copies_to(gpu))
          write_element(peer_slots[gpu] + out.result_offset + row * s.result_pitch(out.cols) +
                            col * s.result_element(),
                        x, fp32_c, s.dtype);
    }
}

}  // namespace mkernel
