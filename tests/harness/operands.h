// What cases of all operators are made of: random operands with canaries around, random networks.
#pragma once
#include <cstdint>
#include <random>
#include <vector>

#include <mkernel/options.h>
#include <mkernel/tensor.h>

namespace mkernel::harness {

/// Limits of waits in builds with a sanitizer are five times as long as they are told to be, which
/// is more than they are slower; and what a planted fault makes hang should not hang for long.
#if defined(MK_SANITIZER)
inline constexpr int64_t kLimitScale = 5;
#else
inline constexpr int64_t kLimitScale = 1;
#endif

using Bits = std::vector<uint16_t>;

inline constexpr uint16_t kCanary = 0x7fe1;  // a NaN: neither an input nor a result

inline uint64_t bytes_of(const Bits& bits) { return bits.size() * kElementBytes; }

/// Bytes between the matrices of two launches in one buffer.
inline uint64_t aligned_bytes(uint64_t bytes) { return (bytes + 255) / 256 * 256; }

int pick(std::mt19937& random, int low, int high);

/// Integers of -4 .. 4: exact in both formats, and so are sums of their products below 2^24.
Bits random_matrix(std::mt19937& random, int64_t rows, int64_t cols, int64_t ld, DType dtype);

/// A random cluster, from one rank to 16, whose epochs may cross their wrap, and its network.
ClusterOptions random_cluster(std::mt19937& random);

}  // namespace mkernel::harness
