#include <gtest/gtest.h>

#include <cmath>
#include <set>

#include "apps/mkernel/generator.h"

namespace mkernel::app {
namespace {

constexpr uint64_t kCount = 1 << 18;

double correlation(uint64_t stream_a, uint64_t stream_b) {
  double sum = 0;
  for (uint64_t i = 0; i < kCount; ++i)
    sum += static_cast<double>(normal(stream_a, i)) * static_cast<double>(normal(stream_b, i));
  return sum / kCount;
}

// Computed from the comments of generator.h in another language. A change here changes the inputs
// of every measurement made so far.
TEST(AppGenerator, GivesTheDocumentedBits) {
  const uint64_t first = stream_of({1, 0, 0, Array::kA});
  EXPECT_EQ(first, 0xe28195ddd9ee4956u);
  EXPECT_EQ(normal(first, 0), 0x1.3e8ap-1f);
  EXPECT_EQ(normal(first, 1), 0x1.596bp+0f);
  EXPECT_EQ(normal(first, 2), 0x1.7232p+0f);
  const uint64_t other = stream_of({7, 3, 5, Array::kB});
  EXPECT_EQ(other, 0xc3741d6dd3e39ef8u);
  EXPECT_EQ(normal(other, 0), -0x1.25d8p-1f);
  EXPECT_EQ(normal(other, uint64_t{1} << 32), 0x1.ccd8p-1f);
}

TEST(AppGenerator, HasTheMomentsOfANormal) {
  const uint64_t stream = stream_of({42, 1, 2, Array::kB});
  double sum[5] = {};
  for (uint64_t i = 0; i < kCount; ++i) {
    const double x = static_cast<double>(normal(stream, i));
    ASSERT_LE(std::fabs(x), 6);
    for (int power = 1; power <= 4; ++power) sum[power] += std::pow(x, power);
  }
  const double sigma = 1 / std::sqrt(kCount);
  EXPECT_NEAR(sum[1] / kCount, 0, 5 * sigma);
  EXPECT_NEAR(sum[2] / kCount, 1, 5 * std::sqrt(2) * sigma);
  EXPECT_NEAR(sum[3] / kCount, 0, 5 * std::sqrt(15) * sigma);
  EXPECT_NEAR(sum[4] / kCount, 2.9, 5 * std::sqrt(96) * sigma);  // 3 - 1.2 / 12 terms
}

TEST(AppGenerator, DiffersBySeedRankIterationAndArray) {
  std::set<uint64_t> streams;
  size_t count = 0;
  for (const uint64_t seed : {0, 1, 2})
    for (int rank = 0; rank < 8; ++rank)
      for (int64_t iteration = 0; iteration < 8; ++iteration)
        for (const Array array : {Array::kA, Array::kB}) {
          streams.insert(stream_of({seed, rank, iteration, array}));
          ++count;
        }
  EXPECT_EQ(streams.size(), count);

  const ArrayKey key{1, 0, 0, Array::kA};
  const double limit = 5 / std::sqrt(kCount);
  EXPECT_LT(std::fabs(correlation(stream_of(key), stream_of({1, 1, 0, Array::kA}))), limit);
  EXPECT_LT(std::fabs(correlation(stream_of(key), stream_of({1, 0, 1, Array::kA}))), limit);
  EXPECT_LT(std::fabs(correlation(stream_of(key), stream_of({1, 0, 0, Array::kB}))), limit);
}

}  // namespace
}  // namespace mkernel::app
