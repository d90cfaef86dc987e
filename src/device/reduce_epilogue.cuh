// What a consumer warpgroup does with its 64 x 256 sums of a tile that many ranks have a part in:
// hand them on as a partial sum, add what others handed on, finish the result. Each warp stages its
// 16 rows, 64 columns at a time: the sums stay in registers only until then, and what follows needs
// few of them (with all sums held while others' are added, the compiler spilled).
#pragma once
#include <cstdint>

#include "device/warp_sums.cuh"
#include "protocol/tile_output.h"

namespace mkernel {

/// Threads: all 128 of a consumer warpgroup, converged. All reads and writes of work space are
/// ordinary ones, in flight until the caller synchronises.
template <class Config>
class ReduceEpilogue {
 public:
  /// `staging`: of the warpgroup, a box of 64 x 64 sums.
  __device__ ReduceEpilogue(uint32_t staging, uint32_t consumer)
      : rows_(staging + threadIdx.x % 128 / 32 * WarpSums<Config>::kBytes,
              consumer * Config::kConsumerRows + threadIdx.x % 128 / 32 * 16) {}

  __device__ __forceinline__ void store(const TileSums& s, char* const* peer_slots,
                                        const TileOutput& out, const float (&acc)[Config::kSums]) {
    if (out.kind == TileOutput::Kind::kNone || rows_.first_row() >= out.rows) return;
#pragma unroll
    for (uint32_t group = 0; group < Config::kTileN / kColumns; ++group) {
      if (group * kColumns >= out.cols) break;
#pragma unroll
      for (uint32_t j = 0; j < kColumns / 8; ++j)
#pragma unroll
        for (uint32_t half = 0; half < 2; ++half) {
          const uint32_t sum = (group * (kColumns / 8) + j) * 4 + half * 2;
          rows_.stage(half, j, acc[sum], acc[sum + 1]);
        }
      __syncwarp();
      if (s.partials == Partials::kFp32)
        rows_.template use<true>(s, peer_slots, out, group * kColumns);
      else
        rows_.template use<false>(s, peer_slots, out, group * kColumns);
      __syncwarp();  // the next group is staged in the same memory
    }
  }

 private:
  static constexpr uint32_t kColumns = WarpSums<Config>::kColumns;

  WarpSums<Config> rows_;
};

}  // namespace mkernel
