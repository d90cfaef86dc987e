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

/// c [m, n] as it was computed from a [m, k] and b [k, n] or [n, k]; k is a.cols.
struct Product {
  Matrix a;
  Matrix b;
  Matrix c;
  DType dtype = DType::kBf16;
  BLayout b_layout = BLayout::kKN;
};

inline uint16_t bits_at(const Matrix& matrix, int64_t row, int64_t col) {
  return static_cast<const uint16_t*>(matrix.data)[row * matrix.ld + col];
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
  double sum[kBlockRows][kPanelCols] = {};
  double abs_sum[kBlockRows][kPanelCols] = {};
};

inline BlockSums multiply_block(const double* a, const double* panel, int64_t k) {
  BlockSums s;
  for (int64_t kk = 0; kk < k; ++kk) {
    for (int64_t i = 0; i < kBlockRows; ++i) {
      for (int64_t j = 0; j < kPanelCols; ++j) {
        const double term = a[i * k + kk] * panel[kk * kPanelCols + j];
        s.sum[i][j] += term;
        s.abs_sum[i][j] += std::fabs(term);
      }
    }
  }
  return s;
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
      const BlockSums s = multiply_block(a.data() + row * k, panel.data(), k);
      for (int64_t i = 0; i < std::min(kBlockRows, p.c.rows - row); ++i) {
        for (int64_t j = 0; j < std::min(kPanelCols, p.c.cols - col); ++j) {
          const double c = to_float(bits_at(p.c, row + i, col + j), p.dtype);
          const double share = bound.share(c, s.sum[i][j], s.abs_sum[i][j]);
          worst.merge({share, row + i, col + j, c, s.sum[i][j]});
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
