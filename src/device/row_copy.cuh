// Copies of rows by all threads of a block with ordinary loads and stores, to memory of this GPU
// or, over NVLink, of another one.
#pragma once
#include <cstdint>

#include "protocol/tile_work.h"

namespace mkernel {

/// Loads in flight per thread: enough to fill one SM's share of NVLink (about 45 GB/s).
inline constexpr uint32_t kCopyUnroll = 8;

/// Columns of a row that 16-byte units do not cover, at most 7 elements.
__device__ inline void copy_row_tails(const RowCopy& c, uint64_t from_byte) {
  const auto tail = static_cast<uint32_t>((c.row_bytes - from_byte) / sizeof(uint16_t));
  if (tail == 0) return;
  for (uint64_t i = threadIdx.x; i < c.rows * tail; i += blockDim.x) {
    const uint64_t at = from_byte + i % tail * sizeof(uint16_t);
    const auto* src = reinterpret_cast<const uint16_t*>(c.src + i / tail * c.src_pitch + at);
    *reinterpret_cast<uint16_t*>(c.dst + i / tail * c.dst_pitch + at) = *src;
  }
}

/// All threads of the block. Both sides 16-byte aligned in base and pitch.
/// Order: in flight until the block's next barrier.
__device__ inline void copy_rows_by_block(const RowCopy& c) {
  const auto units = static_cast<uint32_t>(c.row_bytes / sizeof(uint4));
  const uint64_t total = c.rows * units;
  for (uint64_t base = threadIdx.x; base < total; base += uint64_t{blockDim.x} * kCopyUnroll) {
    uint4 values[kCopyUnroll];
    uint64_t to[kCopyUnroll];
#pragma unroll
    for (uint32_t u = 0; u < kCopyUnroll; ++u) {
      // A chunk has less than 2^32 units: 32-bit divisions are a third of the cost.
      const auto i = static_cast<uint32_t>(base) + u * blockDim.x;
      if (i >= total) break;
      const uint32_t row = i / units, unit = i % units;
      to[u] = row * c.dst_pitch + unit * sizeof(uint4);
      values[u] = *reinterpret_cast<const uint4*>(c.src + row * c.src_pitch + unit * sizeof(uint4));
    }
#pragma unroll
    for (uint32_t u = 0; u < kCopyUnroll; ++u) {
      if (base + u * blockDim.x >= total) break;
      *reinterpret_cast<uint4*>(c.dst + to[u]) = values[u];
    }
  }
  copy_row_tails(c, uint64_t{units} * sizeof(uint4));
}

}  // namespace mkernel
