// Writes the 64 x kTileN sums of a consumer warpgroup to C: rounded to the element type, staged box
// by box in shared memory, then stored by TMA (box whole or cut only by the edge of C, and C
// aligned) or by the warp that staged the rows, predicated (any alignment, any cut).
#pragma once
#include <cstdint>

#include "device/gemm_arguments.h"
#include "device/packed.cuh"
#include "device/ptx/fence.cuh"
#include "device/ptx/mbarrier.cuh"
#include "device/ptx/named_barrier.cuh"
#include "device/ptx/stmatrix.cuh"
#include "device/ptx/tma.cuh"
#include "mkernel/tensor.h"

namespace mkernel {

/// Where a warpgroup's part of a tile goes.
struct EpilogueTarget {
  uint32_t row;   // in C
  uint32_t rows;  // valid, 0..64
  uint32_t col;   // in C
};

/// Threads: all 128 of a consumer warpgroup, converged. Each warpgroup has its own object.
/// A bulk store may still read the staging memory after store(); drain() before it is reused for
/// anything else or the CTA ends.
template <class Config>
class Epilogue {
 public:
  __device__ Epilogue(uint32_t staging, uint32_t consumer)
      : staging_(staging),
        thread_(threadIdx.x % Config::kWarpgroupThreads),
        barrier_(consumer == 0 ? ptx::NamedBarrier::kConsumer0 : ptx::NamedBarrier::kConsumer1) {}

  __device__ __forceinline__ void store(const GemmArguments& arguments, const EpilogueTarget& to,
                                        const float (&acc)[Config::kSums]) {
    // TMA clips at the edge of C only, so rows that end elsewhere are not for it; and it clips a
    // row to whole 16 bytes, so a box cut inside of them is not either: it would write beyond n.
    const bool rows_by_tma =
        arguments.c_has_map != 0 && (to.rows == kBoxRowsC || to.row + to.rows == arguments.m);
    const bool whole_parts = arguments.n % 8 == 0;
#pragma unroll
    for (uint32_t box = 0; box < Config::kBoxesC; ++box) {
      const uint32_t col = to.col + box * kBoxCols;
      if (col >= arguments.n) break;
      const uint32_t buffer = staging_ + (box % Config::kStagedBoxesC) * Config::kBoxBytesC;
      // Box 0 waits for the previous tile's stores, which had a whole main loop to finish; later
      // boxes for the one that used the same buffer.
      if (box == 0 || box >= Config::kStagedBoxesC) {
        if (thread_ == 0) wait_for_buffer(box);
        sync();
      }
      stage_box(buffer, &acc[box * (Config::kSums / Config::kBoxesC)]);
      // Only the last box can differ from the others, so buffers and groups stay in step.
      if (rows_by_tma && (whole_parts || col + kBoxCols <= arguments.n)) {
        ptx::fence_proxy_async_shared();
        sync();
        if (thread_ == 0) {
          ptx::tma_store_2d(&arguments.c, buffer, col, to.row);
          ptx::bulk_commit_group();
        }
      } else {
        __syncwarp();
        copy_box(arguments, buffer, to, col);
      }
    }
  }

  /// Until everything stored is visible to this thread's next release (thread 0 of the
  /// warpgroup issued all bulk stores), e.g. before a flag that says so.
  __device__ __forceinline__ void drain() {
    if (thread_ == 0) ptx::bulk_wait_group<0>();
  }

 private:
  __device__ __forceinline__ void sync() {
    ptx::named_barrier_sync(barrier_, Config::kWarpgroupThreads);
  }

  __device__ __forceinline__ void wait_for_buffer(uint32_t box) {
    if (box == 0) {
      ptx::bulk_wait_group_read<0>();
    } else {
      ptx::bulk_wait_group_read<Config::kStagedBoxesC - 1>();
    }
  }

  // Rows of 128 bytes; the 16-byte part c of row r lies at c ^ (r % 8), as TMA expects with the
  // 128-byte swizzle, and without bank conflicts.
  __device__ __forceinline__ void stage_box(uint32_t buffer, const float* sums) {
    const uint32_t lane = thread_ % 32;
    const uint32_t row = (thread_ / 32) * 16 + lane % 16;
    const uint32_t line = buffer + row * 128;
#pragma unroll
    for (uint32_t pair = 0; pair < 4; ++pair) {  // 16 columns each
      const float* s = sums + pair * 8;
      const uint32_t part = (pair * 2 + lane / 16) ^ (row % 8);
      ptx::stmatrix_x4(line + part * 16, pack_pair<Config::kType>(s[0], s[1]),
                       pack_pair<Config::kType>(s[2], s[3]), pack_pair<Config::kType>(s[4], s[5]),
                       pack_pair<Config::kType>(s[6], s[7]));
    }
  }

  // The warp writes the 16 rows that it staged itself.
  __device__ __forceinline__ void copy_box(const GemmArguments& arguments, uint32_t buffer,
                                           const EpilogueTarget& to, uint32_t col) {
    const uint32_t lane = thread_ % 32;
    const uint32_t first = (thread_ / 32) * 16;
    const uint32_t cols = min(kBoxCols, arguments.n - col);
    uint16_t* c = static_cast<uint16_t*>(arguments.c_data) + to.row * arguments.c_ld + col;
    if (arguments.c_has_map != 0 && cols == kBoxCols) {
#pragma unroll 1
      for (uint32_t row = first + lane / 8; row < min(first + 16, to.rows); row += 4) {
        const uint32_t part = lane % 8;
        *reinterpret_cast<uint4*>(c + row * arguments.c_ld + part * 8) = *static_cast<const uint4*>(
            __cvta_shared_to_generic(buffer + row * 128 + (part ^ (row % 8)) * 16));
      }
      return;
    }
#pragma unroll 1
    for (uint32_t row = first; row < min(first + 16, to.rows); ++row) {
      for (uint32_t j = lane; j < cols; j += 32) {
        const uint32_t offset = row * 128 + ((j / 8) ^ (row % 8)) * 16 + j % 8 * 2;
        c[row * arguments.c_ld + j] =
            *static_cast<const uint16_t*>(__cvta_shared_to_generic(buffer + offset));
      }
    }
  }

  uint32_t staging_;
  uint32_t thread_;
  ptx::NamedBarrier barrier_;
};

}  // namespace mkernel
