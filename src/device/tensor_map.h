// Tensor maps: how TMA, an SM's bulk copies, finds boxes of a matrix. Host side only.
#pragma once
#include <cuda.h>

#include <span>

#include "device/gemm_arguments.h"
#include "mkernel/status.h"
#include "mkernel/tensor.h"

namespace mkernel {

/// True if TMA can address the matrix: base and row pitch are multiples of 16 bytes.
bool is_tma_aligned(const Matrix& matrix);

/// A map of `matrix` with boxes of 64 columns by `box_rows` rows, 128-byte swizzle, zero fill
/// outside the matrix.
/// Errors: invalid_argument if the matrix is empty or not aligned; unavailable without a driver.
Result<CUtensorMap> encode_tensor_map(const Matrix& matrix, DType type, uint32_t box_rows);

/// Operands of C = A * B.
struct GemmOperands {
  /// By TileWork::source, at most kMaxSourcesA. One without rows is allowed: no tile reads it.
  std::span<const Matrix> a;
  Matrix b;  // [k, n] or [n, k], by b_layout
  Matrix c;  // [m, n], any leading dimension and alignment
  BLayout b_layout = BLayout::kKN;
  DType type = DType::kBf16;
};

/// Encodes all maps of a GEMM.
/// Errors: invalid_argument if shapes disagree, there are too many sources, or A or B is not
/// aligned (repack it first).
Result<GemmArguments> make_gemm_arguments(const GemmOperands& operands);

}  // namespace mkernel
