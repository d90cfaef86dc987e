// How far an output element may be from the exact result, and the worst element seen.
#pragma once
#include <cmath>
#include <cstdint>

#include <mkernel/tensor.h>

#include "core/target.h"

namespace mkernel::app {

/// |c - ref| <= unit * |ref| + slack * sum|a||b| + tiny, where ref is summed in fp64 (judge(), in
/// host_verify.h, holds c to it). The error as a share of that is right up to 1, and a NaN
/// infinitely wrong. `unit` is half an ulp of the output format at worst, 2^-8 for bf16 and 2^-11
/// for fp16; `slack` is 2^-22 * sqrt(K), for fp32 sums in any order; `tiny` is half the smallest
/// subnormal.
struct ErrorBound {
  double unit = 0;
  double slack = 0;
  double tiny = 0;

  static ErrorBound of(DType dtype, int64_t k) {
    const bool bf16 = dtype == DType::kBf16;
    return {bf16 ? 0x1p-8 : 0x1p-11, 0x1p-22 * std::sqrt(static_cast<double>(k)),
            bf16 ? 0x1p-134 : 0x1p-25};
  }
};

/// The element with the largest share of its bound; the first of them in row-major order.
struct Worst {
  double share = -1;  // below 0: nothing was compared
  int64_t row = 0;
  int64_t col = 0;
  double got = 0;
  double want = 0;

  bool none() const { return share < 0; }
  bool right() const { return share <= 1; }

  MK_HD void merge(const Worst& other) {
    const bool before = other.row < row || (other.row == row && other.col < col);
    if (other.share > share || (other.share == share && before)) *this = other;
  }
};

}  // namespace mkernel::app
