// Comparison of a whole product with its fp64 reference, on the host. Header-only, so that tests
// use what the application uses. The GPU's counterpart is reference_kernel.cu.
#pragma once
#include <algorithm>
#include <cstdint>
#include <vector>

#include <mkernel/tensor.h>

#include "bound.h"
#include "core/float16.h"

namespace mkernel::app {

/// What became of a product on its way to c: activation(alpha * product + bias + residual).
struct Finish {
  int64_t parts = 1;     // of the depth, equal ones, that were computed apart and then added
  double part_unit = 0;  // what their roundings on the way may cost, relative to each of them
  double alpha = 1;
  Matrix bias = {};      // [1, n], or without data
  Matrix residual = {};  // [m, n], or without data
  Activation activation = Activation::kNone;
  Output output = Output::kSame;
};

/// c [m, n] as it was computed from a [m, k] and b [k, n] or [n, k]; k is a.cols.
struct Product {
  Matrix a;
  Matrix b;
  Matrix c;
  DType dtype = DType::kBf16;
  BLayout b_layout = BLayout::kKN;
  Finish finish = {};
};

/// Sums of one element: of the terms, of their absolute values, of the parts' absolute values.
struct ElementSums {
  double sum = 0;
  double abs_sum = 0;
  double parts_abs = 0;
};

MK_HD uint16_t bits_at(const Matrix& matrix, int64_t row, int64_t col) {
  return static_cast<const uint16_t*>(matrix.data)[row * matrix.ld + col];
}

MK_HD double activated(double x, Activation activation) {
  switch (activation) {
    case Activation::kNone: break;
    case Activation::kRelu: return x > 0 ? x : 0;
    case Activation::kGelu: return 0.5 * x * (1 + erf(x * 0.70710678118654752));
    case Activation::kSilu: return x / (1 + exp(-x));
  }
  return x;
}

/// What element (row, col) is, beside what it should be.
MK_HD Worst judge(const Product& p, const ErrorBound& bound, int64_t row, int64_t col,
                  const ElementSums& s) {
  const Finish& f = p.finish;
  double want = f.alpha * s.sum, size = fabs(want);
  if (f.bias.data != nullptr) {
    const double bias = to_float(bits_at(f.bias, 0, col), p.dtype);
    want += bias;
    size += fabs(bias);
  }
  if (f.residual.data != nullptr) {
    const double residual = to_float(bits_at(f.residual, row, col), p.dtype);
    want += residual;
    size += fabs(residual);
  }
  // What is done to the sum is rounded to fp32 again; gelu and silu are nowhere steeper than 1.13.
  const bool curved = f.activation == Activation::kGelu || f.activation == Activation::kSilu;
  const bool plain =
      !curved && f.alpha == 1 && f.bias.data == nullptr && f.residual.data == nullptr;
  const double of_sum = fabs(f.alpha) * (bound.slack * s.abs_sum + f.part_unit * s.parts_abs);
  const double slack = (curved ? 1.13 : 1) * (of_sum + (plain ? 0 : 0x1p-22 * size));
  want = activated(want, f.activation);
  const bool fp32 = f.output == Output::kFp32;
  const double got = fp32 ? static_cast<const float*>(p.c.data)[row * p.c.ld + col]
                          : to_float(bits_at(p.c, row, col), p.dtype);
  const double allowed = (fp32 ? 0x1p-22 : bound.unit) * fabs(want) + slack + bound.tiny;
  const double share = fabs(got - want) / allowed;
  return {share >= 0 ? share : HUGE_VAL, row, col, got, want};
}

namespace detail {

// Few enough sums for registers, enough of them to hide the latency of an addition.
inline constexpr int64_t kBlockRows = 2;
inline constexpr int64_t kPanelCols = 4;

/// Columns [col, col + kPanelCols) of b as [k][kPanelCols], zero beyond its last column.
inline void pack_panel(const Product& p, int64_t col, std::vector<double>& panel) {
  for (int64_t kk = 0; kk < p.a.cols; ++kk) {
    for (int64_t j = 0; j < kPanelCols; ++j) {
      double value = 0;
      if (col + j < p.c.cols) {
        value = to_float(
            p.b_layout == BLayout::kKN ? bits_at(p.b, kk, col + j) : bits_at(p.b, col + j, kk),
            p.dtype);
      }
      panel[static_cast<size_t>(kk * kPanelCols + j)] = value;
    }
  }
}

struct BlockSums {
  ElementSums of[kBlockRows][kPanelCols];
};

/// Adds the terms of depths [begin, end), a part of `k`.
inline void multiply_part(const double* a, const double* panel, int64_t k, int64_t begin,
                          int64_t end, BlockSums& s) {
  double sum[kBlockRows][kPanelCols] = {}, abs_sum[kBlockRows][kPanelCols] = {};
  for (int64_t kk = begin; kk < end; ++kk) {
    for (int64_t i = 0; i < kBlockRows; ++i) {
      for (int64_t j = 0; j < kPanelCols; ++j) {
        const double term = a[i * k + kk] * panel[kk * kPanelCols + j];
        sum[i][j] += term;
        abs_sum[i][j] += std::fabs(term);
      }
    }
  }
  for (int64_t i = 0; i < kBlockRows; ++i)
    for (int64_t j = 0; j < kPanelCols; ++j) {
      ElementSums& e = s.of[i][j];
      e.sum += sum[i][j];
      e.abs_sum += abs_sum[i][j];
      e.parts_abs += std::fabs(sum[i][j]);
    }
}

}  // namespace detail

/// Compares every element of p.c.
inline Worst verify_product(const Product& p) {
  using namespace detail;
  const int64_t k = p.a.cols;
  const int64_t padded_rows = (p.c.rows + kBlockRows - 1) / kBlockRows * kBlockRows;
  std::vector<double> a(static_cast<size_t>(padded_rows * k));
  for (int64_t i = 0; i < p.c.rows; ++i)
    for (int64_t kk = 0; kk < k; ++kk)
      a[static_cast<size_t>(i * k + kk)] = to_float(bits_at(p.a, i, kk), p.dtype);

  const ErrorBound bound = ErrorBound::of(p.dtype, k);
  std::vector<double> panel(static_cast<size_t>(k * kPanelCols));
  Worst worst;
  for (int64_t col = 0; col < p.c.cols; col += kPanelCols) {
    pack_panel(p, col, panel);
    for (int64_t row = 0; row < p.c.rows; row += kBlockRows) {
      BlockSums s;
      const int64_t depth = k / p.finish.parts;
      for (int64_t begin = 0; begin < k; begin += depth)
        multiply_part(a.data() + row * k, panel.data(), k, begin, begin + depth, s);
      for (int64_t i = 0; i < std::min(kBlockRows, p.c.rows - row); ++i) {
        for (int64_t j = 0; j < std::min(kPanelCols, p.c.cols - col); ++j) {
          worst.merge(judge(p, bound, row + i, col + j, s.of[i][j]));
        }
      }
    }
  }
  return worst;
}

/// Compares bits: an element's share is 0 where they are equal and infinite where they are not.
inline Worst compare_bits(const Matrix& got, const Matrix& want, DType dtype) {
  Worst worst;
  for (int64_t i = 0; i < want.rows; ++i) {
    for (int64_t j = 0; j < want.cols; ++j) {
      const uint16_t g = bits_at(got, i, j);
      const uint16_t w = bits_at(want, i, j);
      worst.merge({g == w ? 0 : HUGE_VAL, i, j, to_float(g, dtype), to_float(w, dtype)});
    }
  }
  return worst;
}

}  // namespace mkernel::app
