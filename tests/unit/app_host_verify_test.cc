#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <vector>

#include "apps/mkernel/generator.h"
#include "apps/mkernel/host_verify.h"

namespace mkernel::app {
namespace {

/// A product with fp32 sums, as an operator would compute it, in memory with padded rows.
class Case {
 public:
  Case(int64_t m, int64_t n, int64_t k, DType dtype, BLayout layout) {
    const bool kn = layout == BLayout::kKN;
    product_ = {matrix(a_, m, k), matrix(b_, kn ? k : n, kn ? n : k), matrix(c_, m, n), dtype,
                layout};
    fill(a_, dtype, Array::kA);
    fill(b_, dtype, Array::kB);
    for (int64_t i = 0; i < m; ++i)
      for (int64_t j = 0; j < n; ++j) c(i, j) = from_float(sum(i, j), dtype);
  }

  uint16_t& c(int64_t row, int64_t col) {
    return c_[static_cast<size_t>(row * product_.c.ld + col)];
  }
  const Product& product() const { return product_; }

 private:
  static Matrix matrix(std::vector<uint16_t>& memory, int64_t rows, int64_t cols) {
    const int64_t ld = cols + 3;
    memory.resize(static_cast<size_t>(rows * ld));
    return {memory.data(), rows, cols, ld};
  }

  static void fill(std::vector<uint16_t>& memory, DType dtype, Array array) {
    const uint64_t stream = stream_of({1, 0, 0, array});
    for (size_t i = 0; i < memory.size(); ++i) memory[i] = from_float(normal(stream, i), dtype);
  }

  float sum(int64_t i, int64_t j) const {
    const Product& p = product_;
    float total = 0;
    for (int64_t kk = 0; kk < p.a.cols; ++kk) {
      const uint16_t b = p.b_layout == BLayout::kKN ? bits_at(p.b, kk, j) : bits_at(p.b, j, kk);
      total += to_float(bits_at(p.a, i, kk), p.dtype) * to_float(b, p.dtype);
    }
    return total;
  }

  std::vector<uint16_t> a_, b_, c_;
  Product product_;
};

/// Of one bf16 element of a product with k = 1024.
double share(double c, const ElementSums& sums, const Finish& finish = {}) {
  uint16_t bits = float_to_bf16(static_cast<float>(c));
  Product product;
  product.c = {&bits, 1, 1, 1};
  product.finish = finish;
  return judge(product, ErrorBound::of(DType::kBf16, 1024), 0, 0, sums).share;
}

TEST(AppHostVerify, AcceptsARightProductOfAnyShape) {
  int num_cases = 0;
  for (const DType dtype : {DType::kBf16, DType::kFp16})
    for (const BLayout layout : {BLayout::kKN, BLayout::kNK})
      for (const int64_t m : {1, 7, 32})
        for (const int64_t n : {1, 5, 64})
          for (const int64_t k : {1, 33, 200}) {
            const Worst worst = verify_product(Case(m, n, k, dtype, layout).product());
            EXPECT_TRUE(worst.right()) << m << ' ' << n << ' ' << k << ": " << worst.share;
            EXPECT_FALSE(worst.none());
            ++num_cases;
          }
  EXPECT_EQ(num_cases, 2 * 2 * 27);
}

TEST(AppHostVerify, NamesTheOneElementThatIsWrong) {
  for (const DType dtype : {DType::kBf16, DType::kFp16}) {
    // Positions: the corners of blocks and panels, and the ragged ends.
    for (const int64_t row : {0, 1, 2, 8}) {
      for (const int64_t col : {0, 3, 4, 12}) {
        Case c(9, 13, 50, dtype, BLayout::kKN);
        c.c(row, col) = static_cast<uint16_t>(c.c(row, col) + 2);  // two ulps
        const Worst worst = verify_product(c.product());
        EXPECT_GT(worst.share, 1);
        EXPECT_EQ(worst.row, row);
        EXPECT_EQ(worst.col, col);
        EXPECT_EQ(worst.got, to_float(c.c(row, col), dtype));
      }
    }
  }
}

TEST(AppHostVerify, NeverAcceptsNaNOrInfinity) {
  for (const float value : {std::numeric_limits<float>::quiet_NaN(), HUGE_VALF}) {
    Case c(5, 6, 20, DType::kBf16, BLayout::kNK);
    c.c(3, 2) = float_to_bf16(value);
    const Worst worst = verify_product(c.product());
    EXPECT_FALSE(worst.right());
    EXPECT_EQ(worst.row, 3);
    EXPECT_EQ(worst.col, 2);
  }
  EXPECT_EQ(share(1, {.sum = std::nan(""), .abs_sum = 1}), HUGE_VAL);
}

TEST(AppHostVerify, FindsNothingInAnEmptyProduct) {
  const Worst worst = verify_product(Case(0, 4, 8, DType::kBf16, BLayout::kKN).product());
  EXPECT_TRUE(worst.none());
  EXPECT_TRUE(worst.right());
}

TEST(AppHostVerify, BoundAllowsARoundingAndTheNoiseOfFp32Sums) {
  const double half_ulp = 0x1p-8, between = 1 + half_ulp;  // halfway from 1 to the next bf16
  EXPECT_EQ(share(1, {.sum = between}), half_ulp / (half_ulp * between + 0x1p-134));
  EXPECT_GT(share(1 + 2 * half_ulp, {.sum = 1}), 1.9);
  EXPECT_LT(share(1 + 2 * half_ulp, {.sum = 1, .abs_sum = 1000}), 0.7);
  EXPECT_EQ(ErrorBound::of(DType::kBf16, 1024).slack, 0x1p-17);
  EXPECT_LE(share(0, {}), 0);
}

TEST(AppHostVerify, BoundAllowsPartsTheirRoundings) {
  const double half_ulp = 0x1p-8;
  const Finish rounded_parts{.parts = 2, .part_unit = half_ulp};
  const ElementSums sums{.sum = 1, .abs_sum = 7, .parts_abs = 7};
  EXPECT_GT(share(1 + 6 * half_ulp, sums), 1);
  EXPECT_LE(share(1 + 6 * half_ulp, sums, rounded_parts), 1);
  EXPECT_GT(share(1 + 16 * half_ulp, sums, rounded_parts), 1);
}

TEST(AppHostVerify, SumsAreFinishedAsAsked) {
  const uint16_t bias = float_to_bf16(-3), residual = float_to_bf16(0.5F);
  Finish finish{.alpha = 2,
                .bias = {const_cast<uint16_t*>(&bias), 1, 1, 1},
                .residual = {const_cast<uint16_t*>(&residual), 1, 1, 1}};
  EXPECT_EQ(share(-0.5, {.sum = 1}, finish), 0);
  finish.activation = Activation::kRelu;
  EXPECT_EQ(share(0, {.sum = 1}, finish), 0);
  EXPECT_GT(share(-0.5, {.sum = 1}, finish), 1);
}

TEST(AppHostVerify, OfEqualErrorsTheFirstIsNamed) {
  Worst worst;
  worst.merge({2, 4, 0, 0, 0});
  worst.merge({2, 3, 9, 0, 0});
  worst.merge({2, 3, 10, 0, 0});
  EXPECT_EQ(worst.row, 3);
  EXPECT_EQ(worst.col, 9);
}

TEST(AppHostVerify, BitComparisonSeesTheSignOfZero) {
  uint16_t got[] = {1, 2, 0x8000, 4};
  uint16_t want[] = {1, 2, 0, 4};
  const Worst worst = compare_bits({got, 2, 2, 2}, {want, 2, 2, 2}, DType::kFp16);
  EXPECT_FALSE(worst.right());
  EXPECT_EQ(worst.row, 1);
  EXPECT_EQ(worst.col, 0);
  EXPECT_TRUE(compare_bits({want, 2, 2, 2}, {want, 2, 2, 2}, DType::kFp16).right());
}

}  // namespace
}  // namespace mkernel::app
