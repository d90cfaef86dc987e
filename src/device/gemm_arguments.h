// What a GEMM kernel gets as its __grid_constant__ parameter. Host code fills it in with
// make_gemm_arguments (tensor_map.h); GemmBlock reads it.
#pragma once
#include <cuda.h>

#include <cstdint>

namespace mkernel {

/// Boxes of the tensor maps, in elements. All are 64 elements = 128 bytes wide, the span of the
/// 128-byte swizzle. They do not depend on the cluster size, so neither does the host code.
inline constexpr uint32_t kBoxCols = 64;
inline constexpr uint32_t kBoxRowsA = 128;
inline constexpr uint32_t kBoxRowsBkn = 64;
inline constexpr uint32_t kBoxRowsBnk = 128;
inline constexpr uint32_t kBoxRowsC = 64;

/// Matrices that tiles may take their rows of A from.
inline constexpr uint32_t kMaxSourcesA = 4;

struct GemmArguments {
  CUtensorMap a[kMaxSourcesA];  // by TileWork::source; unset where the source is empty
  CUtensorMap b;
  CUtensorMap c;  // used only if c_has_map
  void* c_data;   // C, any alignment
  uint64_t c_ld;  // elements
  uint32_t m;     // rows of C
  uint32_t n;
  uint32_t k;
  uint32_t c_has_map;  // C can be stored by TMA: base and row pitch are multiples of 16 bytes
};

}  // namespace mkernel
