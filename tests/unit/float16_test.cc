#include "core/float16.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>

namespace mkernel {
namespace {

bool is_nan(uint16_t bits, DType dtype) { return std::isnan(to_float(bits, dtype)); }

TEST(Float16, EveryPatternSurvivesTheRoundTrip) {
  for (const DType dtype : {DType::kBf16, DType::kFp16})
    for (uint32_t bits = 0; bits <= 0xffff; ++bits) {
      const auto b = static_cast<uint16_t>(bits);
      const uint16_t back = from_float(to_float(b, dtype), dtype);
      if (is_nan(b, dtype))
        EXPECT_TRUE(is_nan(back, dtype));
      else
        EXPECT_EQ(back, b);
    }
}

TEST(Float16, RoundsToNearestTiesToEven) {
  for (const DType dtype : {DType::kBf16, DType::kFp16})
    for (uint32_t bits = 0; bits + 1 <= (dtype == DType::kBf16 ? 0x7f7fu : 0x7bffu); ++bits) {
      const auto low = static_cast<uint16_t>(bits), high = static_cast<uint16_t>(bits + 1);
      const float a = to_float(low, dtype), b = to_float(high, dtype);
      if (std::isinf(b)) continue;
      const float middle = a + (b - a) / 2;
      EXPECT_EQ(from_float(middle, dtype), bits % 2 == 0 ? low : high);
      EXPECT_EQ(from_float(std::nextafter(middle, a), dtype), low);
      EXPECT_EQ(from_float(std::nextafter(middle, b), dtype), high);
      EXPECT_EQ(from_float(-middle, dtype), 0x8000 | (bits % 2 == 0 ? low : high));
    }
}

TEST(Float16, TooLargeForFp16BecomesInfinity) {
  EXPECT_EQ(float_to_fp16(65519.0f), 0x7bff);
  EXPECT_EQ(float_to_fp16(65520.0f), 0x7c00);
  EXPECT_EQ(float_to_fp16(65519.996f), 0x7bff);
  EXPECT_EQ(float_to_fp16(-1e10f), 0xfc00);
}

TEST(Float16, TooLargeForBf16BecomesInfinity) {
  EXPECT_EQ(float_to_bf16(0x1.fep127f), 0x7f7f);
  EXPECT_EQ(float_to_bf16(std::numeric_limits<float>::max()), 0x7f80);
  EXPECT_EQ(float_to_bf16(-HUGE_VALF), 0xff80);
}

}  // namespace
}  // namespace mkernel
