// Numbers and texts as bytes: little-endian, each text behind its length. What is read is checked
// against the bytes that are there and against a limit, before anything is allocated.
#pragma once
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <string>
#include <string_view>

#include "rendezvous/sha256.h"

namespace mkernel {

class WireWriter {
 public:
  template <class Integer>
  void number(Integer value) {
    for (size_t i = 0; i < sizeof value; ++i) {
      bytes_ += static_cast<char>(static_cast<uint64_t>(value) >> (8 * i));
    }
  }
  void text(std::string_view text) {
    number(static_cast<uint32_t>(text.size()));
    bytes_ += text;
  }
  void digest(const Digest& digest) {
    bytes_.append(reinterpret_cast<const char*>(digest.data()), digest.size());
  }
  std::string take() { return std::move(bytes_); }

 private:
  std::string bytes_;
};

/// Reads in the order of writing. After the first field that is not there, or too long, all others
/// read as zero or empty, and complete() is false.
class WireReader {
 public:
  explicit WireReader(std::string_view bytes) : bytes_(bytes) {}

  template <class Integer>
  Integer number() {
    uint64_t value = 0;
    const std::string_view bytes = take(sizeof(Integer));
    for (size_t i = 0; i < bytes.size(); ++i) {
      value |= uint64_t{static_cast<uint8_t>(bytes[i])} << (8 * i);
    }
    return static_cast<Integer>(value);
  }
  std::string text(size_t max_bytes) {
    const auto length = number<uint32_t>();
    if (length > max_bytes) failed_ = true;
    return std::string(take(length));
  }
  Digest digest() {
    Digest digest{};
    const std::string_view bytes = take(digest.size());
    if (!bytes.empty()) std::memcpy(digest.data(), bytes.data(), bytes.size());
    return digest;
  }

  size_t num_left() const { return bytes_.size(); }
  /// Everything was there, and nothing is left over.
  bool complete() const { return !failed_ && bytes_.empty(); }

 private:
  std::string_view take(size_t count) {
    if (failed_ || count > bytes_.size()) {
      failed_ = true;
      return {};
    }
    const std::string_view taken = bytes_.substr(0, count);
    bytes_.remove_prefix(count);
    return taken;
  }

  std::string_view bytes_;
  bool failed_ = false;
};

}  // namespace mkernel
