// One output tile on the host machine: plain loops, fp32 sums in ascending k.
#pragma once
#include <cstdint>

#include <mkernel/tensor.h>

#include "protocol/tile_work.h"

namespace mkernel {

/// Operands of a launch, as every block sees them. Pitches in bytes, sizes in elements.
struct HostGemm {
  const char* sources[3] = {};  // by TileWork::source
  uint64_t source_pitch[3] = {};
  const char* b = nullptr;
  uint64_t b_pitch = 0;
  char* c = nullptr;
  uint64_t c_pitch = 0;
  uint32_t n = 0, k = 0;
  uint32_t tile_n = 0;
  DType dtype = DType::kBf16;
  BLayout b_layout = BLayout::kKN;

  /// Computes and stores one tile of C; touches nothing outside of its rows and columns.
  void multiply(const TileWork& tile) const;
};

}  // namespace mkernel
