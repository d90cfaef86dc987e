// Small words for error messages, and the clock that all limits here are told in.
#pragma once
#include <chrono>
#include <cstdint>
#include <string>
#include <vector>

namespace mkernel {

/// Microseconds of a clock that never goes back. Deadlines are absolute values of it.
inline int64_t steady_us() {
  return std::chrono::duration_cast<std::chrono::microseconds>(
             std::chrono::steady_clock::now().time_since_epoch())
      .count();
}

/// "60 s", "250 ms", "12 us".
std::string text_of_us(int64_t us);

/// "rank 2", "ranks 2, 5", "ranks 0, 1, 2, ... and 61 more".
std::string text_of_ranks(const std::vector<uint32_t>& ranks);

/// Bytes that came from elsewhere, fit for a message: at most `limit` of them, the unprintable
/// ones replaced.
std::string printable(const std::string& bytes, size_t limit);

/// The system's words for an error number, e.g. "Connection refused".
std::string text_of_errno(int error);

}  // namespace mkernel
