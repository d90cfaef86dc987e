// Numbers as people type them, read strictly: what does not mean exactly one allowed number is an
// error that names the option, the value and what is allowed.
#pragma once
#include <charconv>
#include <cmath>
#include <cstdint>
#include <string>

#include <mkernel/status.h>

namespace mkernel::app {

/// What an option takes: [min, max] of whole numbers.
struct WholeRange {
  int64_t min = 0;
  int64_t max = 0;
};

inline Result<int64_t> parse_whole(const std::string& option, const std::string& text,
                                   WholeRange range) {
  int64_t value = 0;
  const char* end = text.data() + text.size();
  const auto [rest, error] = std::from_chars(text.data(), end, value);
  if (error == std::errc() && rest == end && value >= range.min && value <= range.max) return value;
  return Status(Code::kInvalidArgument,
                option + ": got '" + text + "', allowed are whole decimal numbers from " +
                    std::to_string(range.min) + " to " + std::to_string(range.max));
}

inline Result<double> parse_non_negative(const std::string& option, const std::string& text) {
  double value = 0;
  const char* end = text.data() + text.size();
  const auto [rest, error] = std::from_chars(text.data(), end, value);
  if (error == std::errc() && rest == end && std::isfinite(value) && value >= 0) return value;
  return Status(Code::kInvalidArgument,
                option + ": got '" + text + "', allowed are decimal numbers from 0");
}

}  // namespace mkernel::app
