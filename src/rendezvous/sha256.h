// SHA-256 and HMAC-SHA-256, for names of runs and for the proof that a secret is known.
#pragma once
#include <array>
#include <cstdint>
#include <string>
#include <string_view>

namespace mkernel {

using Digest = std::array<uint8_t, 32>;

/// Source:  FIPS 180-4.
Digest sha256(std::string_view bytes);

/// Source:  RFC 2104.
Digest hmac_sha256(std::string_view key, std::string_view bytes);

/// Takes the same time wherever the two differ.
bool same_digest(const Digest& a, const Digest& b);

/// Unpredictable bytes from the system.
Digest random_digest();

/// 64 lower-case digits.
std::string hex_of(const Digest& digest);

}  // namespace mkernel
