#include <gtest/gtest.h>

#include "apps/mkernel/npy.h"

namespace mkernel::app {
namespace {

TEST(AppNpy, HeaderIsAsTheFormatSays) {
  const std::string header = npy_header(3, 40);
  EXPECT_EQ(header.substr(0, 6), "\x93NUMPY");
  EXPECT_EQ(header.substr(6, 2), std::string("\x01\x00", 2));
  const size_t text_size = static_cast<uint8_t>(header[8]) + 256u * static_cast<uint8_t>(header[9]);
  EXPECT_EQ(text_size, header.size() - 10);
  EXPECT_EQ(header.substr(10, 60), "{'descr': '<u2', 'fortran_order': False, 'shape': (3, 40), }");
  EXPECT_EQ(header.back(), '\n');
}

TEST(AppNpy, DataIsAlignedWhateverTheShape) {
  for (int64_t rows = 1; rows < int64_t{1} << 56; rows *= 10)
    for (int64_t cols = 1; cols < int64_t{1} << 56; cols *= 10)
      ASSERT_EQ(npy_header(rows, cols).size() % 64, 0u) << rows << ' ' << cols;
}

TEST(AppNpy, EmptyMatricesAreLegal) {
  EXPECT_NE(npy_header(0, 8).find("(0, 8)"), std::string::npos);
  EXPECT_FALSE(write_npy("/nonexistent/x.npy", 0, 8, {}).is_ok());
}

}  // namespace
}  // namespace mkernel::app
