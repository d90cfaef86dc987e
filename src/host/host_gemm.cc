#include "host/host_gemm.h"

#include <cstring>
#include <vector>

#include "core/float16.h"
#include "core/maths.h"

namespace mkernel {
namespace {

/// Depth of a panel: its part of B (depth * tile_n floats) stays in the first-level cache.
constexpr uint32_t kPanelDepth = 64;

/// An element of any alignment.
uint16_t element(const char* row, uint64_t i) {
  uint16_t bits;
  std::memcpy(&bits, row + i * kElementBytes, sizeof bits);
  return bits;
}

/// panel[d][j] = B(k0 + d, col + j).
void load_b_panel(const HostGemm& g, uint32_t k0, uint32_t depth, uint32_t col, uint32_t cols,
                  float* panel) {
  for (uint32_t d = 0; d < depth; ++d)
    for (uint32_t j = 0; j < cols; ++j) {
      const bool kn = g.b_layout == BLayout::kKN;
      const char* row = g.b + uint64_t{kn ? k0 + d : col + j} * g.b_pitch;
      panel[d * cols + j] = to_float(element(row, kn ? col + j : k0 + d), g.dtype);
    }
}

}  // namespace

HostTile HostGemm::multiply(const TileWork& tile) const {
  const uint32_t cols = smaller(tile_n, n - tile.col);
  HostTile tile_sums(size_t{tile.rows} * cols, 0.0f);
  std::vector<float> panel(size_t{kPanelDepth} * cols);
  for (uint32_t k0 = 0; k0 < k; k0 += kPanelDepth) {
    const uint32_t depth = smaller(kPanelDepth, k - k0);
    load_b_panel(*this, k0, depth, tile.col, cols, panel.data());
    for (uint32_t i = 0; i < tile.rows; ++i) {
      const char* a_row =
          sources[tile.source] + uint64_t{tile.a_row + i} * source_pitch[tile.source];
      float* sum = &tile_sums[size_t{i} * cols];
      for (uint32_t d = 0; d < depth; ++d) {
        const float a = to_float(element(a_row, k0 + d), dtype);
        const float* b_row = &panel[size_t{d} * cols];
        for (uint32_t j = 0; j < cols; ++j) sum[j] += a * b_row[j];
      }
    }
  }
  return tile_sums;
}

void HostGemm::store(const TileWork& tile, const HostTile& tile_sums) const {
  const uint32_t cols = smaller(tile_n, n - tile.col);
  for (uint32_t i = 0; i < tile.rows; ++i) {
    char* c_row = c + uint64_t{tile.c_row + i} * c_pitch + uint64_t{tile.col} * kElementBytes;
    for (uint32_t j = 0; j < cols; ++j) {
      const uint16_t bits = from_float(tile_sums[size_t{i} * cols + j], dtype);
      std::memcpy(c_row + j * kElementBytes, &bits, sizeof bits);
    }
  }
}

}  // namespace mkernel
