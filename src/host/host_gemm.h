// One output tile on the host machine: plain loops, fp32 sums in ascending k.
#pragma once
#include <cstdint>
#include <vector>

#include <mkernel/tensor.h>

#include "protocol/tile_output.h"
#include "protocol/tile_work.h"

namespace mkernel {

/// The sums of a tile, row by row.
using HostTile = std::vector<float>;

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

  // Where partial sums of many ranks are added.
  const TileSums* sums = nullptr;
  char* const* peer_slots = nullptr;  // by gpu index in the node

  bool delivers() const { return sums != nullptr; }

  HostTile multiply(const TileWork& tile) const;
  /// Rounds a tile and stores it in C; touches nothing outside of its rows and columns.
  void store(const TileWork& tile, const HostTile& tile_sums) const;
  /// Does with a tile's sums what `output` says (host_reduce.cc).
  void store(const TileOutput& output, const HostTile& tile_sums) const;
};

}  // namespace mkernel
