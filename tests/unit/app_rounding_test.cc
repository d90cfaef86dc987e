#include <cmath>
#include <limits>

#include <gtest/gtest.h>

#include "apps/mkernel/rounding.h"

namespace mkernel::app {
namespace {

constexpr DType kDTypes[] = {DType::kBf16, DType::kFp16};

/// Bits of the largest finite element.
uint16_t max_finite(DType dtype) { return dtype == DType::kBf16 ? 0x7f7f : 0x7bff; }

TEST(AppRounding, EveryElementSurvivesARoundTrip) {
  int num_values = 0;
  for (const DType dtype : kDTypes) {
    for (uint32_t bits = 0; bits < 0x10000; ++bits) {
      const auto element = static_cast<uint16_t>(bits);
      const float value = to_float(dtype, element);
      if (std::isnan(value)) {
        EXPECT_TRUE(std::isnan(to_float(dtype, to_bits(dtype, value)))) << bits;
      } else {
        ASSERT_EQ(to_bits(dtype, value), element);
        ++num_values;
      }
    }
  }
  // All but the NaNs: 2 * 127 of bf16, 2 * 1023 of fp16.
  EXPECT_EQ(num_values, 2 * 0x10000 - 2 * 127 - 2 * 1023);
}

TEST(AppRounding, BetweenNeighboursTheNearerWinsAndTiesGoToEven) {
  for (const DType dtype : kDTypes) {
    for (uint16_t low = 0; low < max_finite(dtype); ++low) {
      const auto high = static_cast<uint16_t>(low + 1);
      // Exact: both formats have far fewer digits than float. Halved first: a sum could overflow.
      const float tie = to_float(dtype, low) / 2 + to_float(dtype, high) / 2;
      const uint16_t even = low % 2 == 0 ? low : high;
      ASSERT_EQ(to_bits(dtype, tie), even) << low;
      ASSERT_EQ(to_bits(dtype, std::nextafter(tie, 0.0f)), low) << low;
      ASSERT_EQ(to_bits(dtype, std::nextafter(tie, HUGE_VALF)), high) << low;
      ASSERT_EQ(to_bits(dtype, -tie), even | 0x8000) << low;
    }
  }
}

TEST(AppRounding, BeyondTheLargestNumberIsInfinity) {
  EXPECT_EQ(float_to_fp16(65519.996f), 0x7bff);
  EXPECT_EQ(float_to_fp16(65520.0f), 0x7c00);
  EXPECT_EQ(float_to_fp16(-1e30f), 0xfc00);
  EXPECT_EQ(float_to_bf16(std::numeric_limits<float>::max()), 0x7f80);
  EXPECT_EQ(float_to_bf16(-HUGE_VALF), 0xff80);
}

TEST(AppRounding, TheFillPatternIsNaN) {
  for (const DType dtype : kDTypes) EXPECT_TRUE(std::isnan(to_float(dtype, nan_bits(dtype))));
}

}  // namespace
}  // namespace mkernel::app
