// What a caller hands over: typed, strided views of memory on a rank's device. No ownership.
#pragma once
#include <cstdint>

namespace mkernel {

/// Element types of inputs and outputs; both take 2 bytes. Sums are always fp32.
enum class DType : uint8_t { kBf16, kFp16 };

/// How the weight matrix lies in memory: kKN is [k, n] row-major, kNK is [n, k] row-major.
enum class BLayout : uint8_t { kKN, kNK };

/// What partial sums are rounded to, once, when they travel between ranks: the type of the inputs,
/// or fp32, which costs twice the traffic. What is added to what is always fp32.
enum class Partials : uint8_t { k16Bit, kFp32 };

/// What is done to a sum at last. Gelu is the exact one, by erf.
enum class Activation : uint8_t { kNone, kRelu, kGelu, kSilu };

/// Element type of an output: that of the inputs, or fp32.
enum class Output : uint8_t { kSame, kFp32 };

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
