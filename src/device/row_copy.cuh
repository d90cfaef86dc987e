// Copies of rows by threads with ordinary loads and stores: by element for what bulk copies cannot
// carry, because rows are no multiple of 16 bytes (right, not fast); by vectors where the memory
// that bulk copies need is in use.
#pragma once
#include <cstdint>

#include "protocol/tile_work.h"

namespace mkernel {

/// Threads 0 .. num_threads - 1 of those that share the work. Both sides aligned to an element.
/// Order: in flight until their next barrier.
template <class Element = uint16_t>
__device__ inline void copy_rows_by_elements(const RowCopy& c, uint32_t thread,
                                             uint32_t num_threads) {
  const uint64_t elements = c.row_bytes / sizeof(Element);
  for (uint64_t i = thread; i < c.rows * elements; i += num_threads) {
    const uint64_t row = i / elements, at = i % elements;
    reinterpret_cast<Element*>(c.dst + row * c.dst_pitch)[at] =
        reinterpret_cast<const Element*>(c.src + row * c.src_pitch)[at];
  }
}

/// The same for a tile of less than 2^32 bytes; 16 bytes at a time, several in flight per thread,
/// where all addresses and sizes are multiples of that.
__device__ inline void copy_rows_by_vectors(const RowCopy& c, uint32_t thread,
                                            uint32_t num_threads) {
  const uint64_t all = reinterpret_cast<uintptr_t>(c.dst) | reinterpret_cast<uintptr_t>(c.src) |
                       c.dst_pitch | c.src_pitch | c.row_bytes;
  if (all % sizeof(uint4) != 0) return copy_rows_by_elements(c, thread, num_threads);
  constexpr uint32_t kInFlight = 4;
  const auto per_row = static_cast<uint32_t>(c.row_bytes / sizeof(uint4));
  const uint32_t total = static_cast<uint32_t>(c.rows) * per_row;
  for (uint32_t first = thread; first < total; first += kInFlight * num_threads) {
    uint4 vectors[kInFlight];
#pragma unroll
    for (uint32_t j = 0; j < kInFlight; ++j) {
      const uint32_t i = first + j * num_threads;
      if (i < total)
        vectors[j] =
            __ldcg(reinterpret_cast<const uint4*>(c.src + i / per_row * c.src_pitch) + i % per_row);
    }
#pragma unroll
    for (uint32_t j = 0; j < kInFlight; ++j) {
      const uint32_t i = first + j * num_threads;
      if (i < total)
        reinterpret_cast<uint4*>(c.dst + i / per_row * c.dst_pitch)[i % per_row] = vectors[j];
    }
  }
}

}  // namespace mkernel
