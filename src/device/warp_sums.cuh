// A warp's 16 x 64 sums of a tile that many ranks have a part in, in shared memory.
#pragma once
#include <cstdint>

#include "device/packed.cuh"
#include "device/result_row.cuh"
#include "protocol/tile_output.h"

namespace mkernel {

/// Partial sums lie in work space row by row, padded to whole vectors of eight.
inline constexpr uint32_t kPartialRows = 1;
inline constexpr uint32_t kPartialCols = 8;

/// One lane's view. All lanes of the warp call stage() for all of its sums, synchronise, use().
template <class Config>
class WarpSums {
 public:
  static constexpr uint32_t kColumns = 64;
  static constexpr uint32_t kBytes = 16 * kColumns * sizeof(float);
  static_assert(4 * kBytes == Config::kStagedBoxesC * Config::kBoxBytesC);

  /// `first_row`: of the warp, in the tile.
  __device__ __forceinline__ WarpSums(uint32_t memory, uint32_t first_row)
      : memory_(memory), first_row_(first_row), lane_(threadIdx.x % 32) {
    // No instruction: keeps the compiler from working out all addresses before the main loop, and
    // holding them in registers that it then lacks.
    asm volatile("" : "+r"(memory_), "+r"(first_row_), "+r"(lane_));
  }
  __device__ uint32_t first_row() const { return first_row_; }

  /// Row lane / 4 (+ 8), columns 8 j + 2 (lane % 4) + {0, 1}: where wgmma leaves them.
  __device__ __forceinline__ void stage(uint32_t half, uint32_t j, float low, float high) const {
    *static_cast<float2*>(__cvta_shared_to_generic(cell(half * 8 + lane() / 4, j) +
                                                   lane() % 4 * 8)) = make_float2(low, high);
  }

  /// Does what `out` says with the columns from `first_col` of the tile on.
  template <bool kFp32>
  __device__ __forceinline__ void use(const TileSums& s, char* const* peer_slots,
                                      const TileOutput& out, uint32_t first_col) const {
    using Kind = TileOutput::Kind;
    if (out.kind != Kind::kPartial)
      add_terms<kFp32>(s.gpus, s.gpu, out.partials, s.partial_stride, out, first_col);
    if (out.kind != Kind::kResult) return store_partial<kFp32>(out, first_col);
    add_terms<kFp32>(s.nodes, s.node, out.sums, s.sum_stride, out, first_col);
    __syncwarp();  // rows are finished by other lanes than they were added by
    const uint32_t col = lane() % 16 * 4;
    if (first_col + col >= out.cols) return;
#pragma unroll 1
    for (uint32_t row = lane() / 16; row < 16 && first_row_ + row < out.rows; row += 2) {
      const float4 x =
          *static_cast<const float4*>(__cvta_shared_to_generic(cell(row, col / 8) + col % 8 * 4));
      write_result<Config::kType>(s, peer_slots, out, first_row_ + row, first_col + col, x);
    }
  }

 private:
  // A lane adds eight neighbours in each of several rows, which lie four apart. What it loads at
  // once, four vectors, hides the latency; with more the compiler spilled.
  template <bool kFp32>
  struct Vectors {
    static constexpr uint32_t kPerRow = kFp32 ? 2 : 1;
    static constexpr uint32_t kRows = 4 / kPerRow;
    uint4 of[kRows][kPerRow];
  };

  __device__ uint32_t lane() const { return lane_; }
  __device__ uint32_t row_of(uint32_t i) const { return i * 4 + lane() / 8; }

  // A row has eight cells of eight columns. Each four of them are turned, so that the four rows
  // which half a warp stages at once lie in different banks.
  __device__ __forceinline__ uint32_t cell(uint32_t row, uint32_t j) const {
    return memory_ + row * 256 + j / 4 * 128 + (j % 4 ^ row % 4) * 32;
  }
  __device__ __forceinline__ float4* own(uint32_t i, uint32_t half) const {
    return static_cast<float4*>(
        __cvta_shared_to_generic(cell(lane() / 8, lane() % 8) + i * 4 * 256 + half * 16));
  }

  template <bool kFp32>
  __device__ __forceinline__ bool exists(const TileOutput& out, uint32_t first_col,
                                         uint32_t i) const {
    return first_row_ + row_of(i) < out.rows && first_col + lane() % 8 * 8 < out.cols;
  }
  template <bool kFp32>
  __device__ __forceinline__ uint32_t offset(const TileOutput& out, uint32_t first_col,
                                             uint32_t i) const {
    constexpr uint32_t kElement = kFp32 ? 4 : 2;
    const uint32_t pitch = (out.cols + kPartialCols - 1) / kPartialCols * kPartialCols * kElement;
    return (first_row_ + row_of(i)) * pitch + (first_col + lane() % 8 * 8) * kElement;
  }

  template <bool kFp32>
  __device__ __forceinline__ void pack_own(uint4 (&to)[Vectors<kFp32>::kPerRow], uint32_t i) const {
    const float4 low = *own(i, 0), high = *own(i, 1);
    if constexpr (kFp32) {
      to[0] = as_words(low);
      to[1] = as_words(high);
    } else {
      constexpr DType kType = Config::kType;
      to[0] = make_uint4(pack_pair<kType>(low.x, low.y), pack_pair<kType>(low.z, low.w),
                         pack_pair<kType>(high.x, high.y), pack_pair<kType>(high.z, high.w));
    }
  }

  template <bool kFp32>
  __device__ static __forceinline__ void add(float4 (&sum)[2],
                                             const uint4 (&v)[Vectors<kFp32>::kPerRow]) {
    if constexpr (kFp32) {
      sum[0] = sum[0] + as_floats(v[0]);
      sum[1] = sum[1] + as_floats(v[1]);
    } else {
      sum[0] = sum[0] + unpack_two<Config::kType>(v[0].x, v[0].y);
      sum[1] = sum[1] + unpack_two<Config::kType>(v[0].z, v[0].w);
    }
  }

  /// Replaces the sums by those over `count` terms in their order. The own ones are one of them,
  /// and rounded as all; the others' lie `stride` apart.
  template <bool kFp32>
  __device__ __forceinline__ void add_terms(uint32_t count, uint32_t self, const char* others,
                                            uint64_t stride, const TileOutput& out,
                                            uint32_t first_col) const {
    if (count == 1) return;
#pragma unroll 1
    for (uint32_t first = 0; first < 4; first += Vectors<kFp32>::kRows)
      add_terms_in_rows<kFp32>(first, count, self, others, stride, out, first_col);
  }
  template <bool kFp32>
  __device__ __forceinline__ void add_terms_in_rows(uint32_t first, uint32_t count, uint32_t self,
                                                    const char* others, uint64_t stride,
                                                    const TileOutput& out,
                                                    uint32_t first_col) const {
    constexpr uint32_t kRows = Vectors<kFp32>::kRows;
    float4 sums[kRows][2];
#pragma unroll
    for (auto& sum : sums)  // -0 is the neutral element, also for -0
      sum[0] = sum[1] = make_float4(-0.0f, -0.0f, -0.0f, -0.0f);
#pragma unroll 1
    for (uint32_t term = 0; term < count; ++term) {
      Vectors<kFp32> v{};
      if (term == self) {
#pragma unroll
        for (uint32_t i = 0; i < kRows; ++i) pack_own<kFp32>(v.of[i], first + i);
      } else {
#pragma unroll
        for (uint32_t i = 0; i < kRows; ++i)
#pragma unroll
          for (uint32_t j = 0; j < Vectors<kFp32>::kPerRow; ++j)
            if (exists<kFp32>(out, first_col, first + i))  // not through L1: nobody reads it again
              v.of[i][j] = __ldcg(reinterpret_cast<const uint4*>(
                                      others + offset<kFp32>(out, first_col, first + i)) +
                                  j);
        others += stride;
      }
#pragma unroll
      for (uint32_t i = 0; i < kRows; ++i) add<kFp32>(sums[i], v.of[i]);
    }
#pragma unroll
    for (uint32_t i = 0; i < kRows; ++i) {
      *own(first + i, 0) = sums[i][0];
      *own(first + i, 1) = sums[i][1];
    }
  }

  template <bool kFp32>
  __device__ __forceinline__ void store_partial(const TileOutput& out, uint32_t first_col) const {
#pragma unroll
    for (uint32_t i = 0; i < 4; ++i) {
      if (!exists<kFp32>(out, first_col, i)) continue;
      uint4 v[Vectors<kFp32>::kPerRow];
      pack_own<kFp32>(v, i);
#pragma unroll
      for (uint32_t j = 0; j < Vectors<kFp32>::kPerRow; ++j)
        reinterpret_cast<uint4*>(out.to + offset<kFp32>(out, first_col, i))[j] = v[j];
    }
  }

  uint32_t memory_;
  uint32_t first_row_;
  uint32_t lane_;
};

}  // namespace mkernel
