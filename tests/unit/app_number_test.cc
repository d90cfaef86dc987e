#include <gtest/gtest.h>

#include "apps/mkernel/number.h"
#include "apps/mkernel/summary.h"

namespace mkernel::app {
namespace {

TEST(AppNumber, ReadsWholeDecimalNumbersOnly) {
  constexpr WholeRange kRange{0, 100};
  EXPECT_EQ(parse_whole("--m", "0", kRange).value(), 0);
  EXPECT_EQ(parse_whole("--m", "100", kRange).value(), 100);
  for (const char* text :
       {"", "1e3", "12x", "-1", "101", "0x10", "+5", " 5", "5 ", "1.0", "99999999999999999999"}) {
    const Result<int64_t> number = parse_whole("--m", text, kRange);
    ASSERT_FALSE(number.is_ok()) << text;
    EXPECT_EQ(number.status().message(), std::string("--m: got '") + text +
                                             "', allowed are whole decimal numbers from 0 to 100");
  }
}

TEST(AppNumber, ReadsNonNegativeDecimals) {
  EXPECT_EQ(parse_non_negative("--link-gbs", "12.5").value(), 12.5);
  for (const char* text : {"", "-1", "nan", "inf", "1,5", "x"})
    EXPECT_FALSE(parse_non_negative("--link-gbs", text).is_ok()) << text;
}

TEST(AppSummary, InterpolatesBetweenNeighbours) {
  const TimedRun run = summarize("fused", {4, 1, 3, 2, 5});
  EXPECT_DOUBLE_EQ(run.median_us, 3);
  EXPECT_DOUBLE_EQ(run.p10_us, 1.4);
  EXPECT_DOUBLE_EQ(run.p90_us, 4.6);
  EXPECT_DOUBLE_EQ(summarize("one", {7}).p90_us, 7);
}

}  // namespace
}  // namespace mkernel::app
