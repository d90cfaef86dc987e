// Matrices as .npy files, format 1.0, C order: 16-bit elements as '<u2' bit patterns, fp32 as
// '<f4'.
#pragma once
#include <cstdint>
#include <fstream>
#include <string>
#include <type_traits>
#include <vector>

#include <mkernel/status.h>

namespace mkernel::app {

/// Magic, version, and the description padded so that the data starts at a multiple of 64 bytes.
inline std::string npy_header(int64_t rows, int64_t cols, const std::string& type = "<u2") {
  std::string text = "{'descr': '" + type + "', 'fortran_order': False, 'shape': (" +
                     std::to_string(rows) + ", " + std::to_string(cols) + "), }";
  constexpr size_t kPrefixBytes = 10;
  const size_t unpadded = kPrefixBytes + text.size() + 1;
  text.append((64 - unpadded % 64) % 64, ' ').push_back('\n');
  std::string header = "\x93NUMPY";
  header += '\x01';
  header += '\x00';
  header += static_cast<char>(text.size() & 0xff);
  header += static_cast<char>(text.size() >> 8);
  return header + text;
}

/// Writes a [rows, cols] matrix without padding; either may be 0.
template <class Element = uint16_t>
Status write_npy(const std::string& path, int64_t rows, int64_t cols,
                 const std::vector<Element>& elements) {
  std::ofstream file(path, std::ios::binary);
  file << npy_header(rows, cols, std::is_same_v<Element, float> ? "<f4" : "<u2");
  file.write(reinterpret_cast<const char*>(elements.data()),
             static_cast<std::streamsize>(elements.size() * sizeof(Element)));
  file.flush();
  if (!file) return {Code::kInternal, "cannot write " + path};
  return Status::ok();
}

}  // namespace mkernel::app
