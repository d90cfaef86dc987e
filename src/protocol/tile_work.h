// What a machine is told to do: one output tile, or one copy.
#pragma once
#include <cstdint>

namespace mkernel {

/// Sources of a tile's rows of A.
inline constexpr uint32_t kOwnRows = 0;    // the caller's A
inline constexpr uint32_t kFirstSlot = 1;  // kFirstSlot + s: slot s of the gathered A

/// One output tile of at most tile_m x tile_n.
struct TileWork {
  uint32_t source;
  uint32_t a_row;       // first row in the source
  uint32_t c_row;       // first row in C
  uint32_t rows;        // 1 .. tile_m
  uint32_t col;         // first column of B and C
  uint32_t ticket = 0;  // which tile it is, where somebody else than the feeder wants to know
};

/// A copy of rows; pitches and sizes in bytes.
struct RowCopy {
  char* dst;
  uint64_t dst_pitch;
  const char* src;
  uint64_t src_pitch;
  uint64_t rows;
  uint64_t row_bytes;
};

}  // namespace mkernel
