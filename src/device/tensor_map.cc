#include "device/tensor_map.h"

#include <string>

#include "memory/cuda_driver.h"

namespace mkernel {
namespace {

using EncodeTiled = decltype(&cuTensorMapEncodeTiled);

Result<EncodeTiled> find_encode_tiled() {
  EncodeTiled encode = nullptr;
  MK_RETURN_IF_ERROR(find_driver_function("cuTensorMapEncodeTiled", 12000, &encode));
  return encode;
}

std::string describe(const Matrix& matrix) {
  return "matrix [" + std::to_string(matrix.rows) + ", " + std::to_string(matrix.cols) + "], ld " +
         std::to_string(matrix.ld) + ", address " +
         std::to_string(reinterpret_cast<uintptr_t>(matrix.data));
}

}  // namespace

bool is_tma_aligned(const Matrix& matrix) {
  return reinterpret_cast<uintptr_t>(matrix.data) % 16 == 0 &&
         static_cast<uint64_t>(matrix.ld) * kElementBytes % 16 == 0;
}

Result<CUtensorMap> encode_tensor_map(const Matrix& matrix, DType type, uint32_t box_rows) {
  constexpr int64_t kMaxCoordinate = int64_t{1} << 31;  // coordinates are signed 32-bit
  if (matrix.data == nullptr || matrix.rows < 1 || matrix.cols < 1 || matrix.ld < matrix.cols ||
      matrix.rows >= kMaxCoordinate || matrix.cols >= kMaxCoordinate || !is_tma_aligned(matrix)) {
    return Status(Code::kInvalidArgument,
                  "no tensor map for " + describe(matrix) +
                      ": rows and cols must be in [1, 2^31), base and row pitch multiples of "
                      "16 bytes");
  }
  Result<EncodeTiled> encode = find_encode_tiled();
  if (!encode) return encode.status();

  const cuuint64_t extents[2] = {static_cast<cuuint64_t>(matrix.cols),
                                 static_cast<cuuint64_t>(matrix.rows)};
  const cuuint64_t pitch_bytes[1] = {static_cast<cuuint64_t>(matrix.ld) * kElementBytes};
  const cuuint32_t box[2] = {kBoxCols, box_rows};
  const cuuint32_t element_strides[2] = {1, 1};
  CUtensorMap map{};
  const CUresult result = encode.value()(
      &map,
      type == DType::kBf16 ? CU_TENSOR_MAP_DATA_TYPE_BFLOAT16 : CU_TENSOR_MAP_DATA_TYPE_FLOAT16, 2,
      matrix.data, extents, pitch_bytes, box, element_strides, CU_TENSOR_MAP_INTERLEAVE_NONE,
      CU_TENSOR_MAP_SWIZZLE_128B, CU_TENSOR_MAP_L2_PROMOTION_L2_256B,
      CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE);
  if (result != CUDA_SUCCESS) {
    return Status(Code::kInternal, "cuTensorMapEncodeTiled failed with code " +
                                       std::to_string(static_cast<int>(result)) + " for " +
                                       describe(matrix));
  }
  return map;
}

Result<GemmArguments> make_gemm_arguments(const GemmOperands& operands) {
  const Matrix& b = operands.b;
  const Matrix& c = operands.c;
  const bool is_kn = operands.b_layout == BLayout::kKN;
  const int64_t k = is_kn ? b.rows : b.cols;
  const int64_t n = is_kn ? b.cols : b.rows;
  if (c.cols != n || c.ld < n || (c.data == nullptr && c.rows > 0) ||
      operands.a.size() > kMaxSourcesA) {
    return Status(Code::kInvalidArgument, "GEMM of " + std::to_string(operands.a.size()) +
                                              " sources (at most " + std::to_string(kMaxSourcesA) +
                                              "): b " + describe(b) + " does not give c " +
                                              describe(c));
  }
  GemmArguments arguments{};
  arguments.c_data = c.data;
  arguments.c_ld = static_cast<uint64_t>(c.ld);
  arguments.m = static_cast<uint32_t>(c.rows);
  arguments.n = static_cast<uint32_t>(n);
  arguments.k = static_cast<uint32_t>(k);
  arguments.c_has_map = c.rows > 0 && is_tma_aligned(c) ? 1 : 0;
  const auto encode = [&](const Matrix& matrix, uint32_t box_rows, CUtensorMap& into) {
    const Result<CUtensorMap> map = encode_tensor_map(matrix, operands.type, box_rows);
    if (map) into = map.value();
    return map.status();
  };
  for (size_t i = 0; i < operands.a.size(); ++i) {
    const Matrix& a = operands.a[i];
    if (a.rows == 0) continue;
    if (a.cols != k) {
      return Status(Code::kInvalidArgument,
                    "a is a " + describe(a) + ", k of b is " + std::to_string(k));
    }
    MK_RETURN_IF_ERROR(encode(a, kBoxRowsA, arguments.a[i]));
  }
  MK_RETURN_IF_ERROR(encode(b, is_kn ? kBoxRowsBkn : kBoxRowsBnk, arguments.b));
  if (arguments.c_has_map != 0) MK_RETURN_IF_ERROR(encode(c, kBoxRowsC, arguments.c));
  return arguments;
}

}  // namespace mkernel
