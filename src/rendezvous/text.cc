#include "rendezvous/text.h"

#include <algorithm>
#include <system_error>

namespace mkernel {

std::string text_of_us(int64_t us) {
  if (us % 1'000'000 == 0) return std::to_string(us / 1'000'000) + " s";
  if (us % 1000 == 0) return std::to_string(us / 1000) + " ms";
  return std::to_string(us) + " us";
}

std::string text_of_ranks(const std::vector<uint32_t>& ranks) {
  constexpr size_t kMaxNamed = 16;
  std::string text = ranks.size() == 1 ? "rank " : "ranks ";
  const size_t num_named = std::min(ranks.size(), kMaxNamed);
  for (size_t i = 0; i < num_named; ++i) text += (i > 0 ? ", " : "") + std::to_string(ranks[i]);
  if (ranks.size() > num_named) {
    text += " and " + std::to_string(ranks.size() - num_named) + " more";
  }
  return text;
}

std::string printable(const std::string& bytes, size_t limit) {
  std::string text = bytes.substr(0, limit);
  std::ranges::replace_if(
      text, [](char c) { return c < ' ' || c > '~'; }, '?');
  return text;
}

std::string text_of_errno(int error) { return std::generic_category().message(error); }

}  // namespace mkernel
