// Copies of rows by all threads of a block with ordinary loads and stores: for what bulk copies
// cannot carry, because rows are no multiple of 16 bytes. Right, not fast.
#pragma once
#include <cstdint>

#include "protocol/tile_work.h"

namespace mkernel {

/// All threads of the block. Both sides aligned to an element.
/// Order: in flight until the block's next barrier.
__device__ inline void copy_rows_by_elements(const RowCopy& c) {
  const uint64_t elements = c.row_bytes / sizeof(uint16_t);
  for (uint64_t i = threadIdx.x; i < c.rows * elements; i += blockDim.x) {
    const uint64_t row = i / elements, at = i % elements;
    reinterpret_cast<uint16_t*>(c.dst + row * c.dst_pitch)[at] =
        reinterpret_cast<const uint16_t*>(c.src + row * c.src_pitch)[at];
  }
}

}  // namespace mkernel
