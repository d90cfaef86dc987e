// What a caller hands over: typed, strided views of memory on a rank's device. No ownership.
#pragma once
#include <cstdint>

namespace mkernel {

/// Element types of inputs and outputs; both take 2 bytes. Sums are always fp32.
enum class DType : uint8_t { kBf16, kFp16 };

/// How the weight matrix lies in memory: kKN is [k, n] row-major, kNK is [n, k] row-major.
enum class BLayout : uint8_t { kKN, kNK };

inline constexpr uint64_t kElementBytes = 2;

/// The most rows, columns or depth: rounded up to tiles they are counted with 31 bits on the
/// device; offsets with 64.
inline constexpr int64_t kMaxExtent = int64_t{1} << 30;

/// A row-major matrix: element (i, j) is data[i * ld + j]. `ld` is in elements, ld >= cols.
struct Matrix {
  void* data = nullptr;
  int64_t rows = 0;
  int64_t cols = 0;
  int64_t ld = 0;
};

}  // namespace mkernel
