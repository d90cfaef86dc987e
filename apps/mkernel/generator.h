// Random inputs: element i of an array is a pure function of (seed, rank, iteration, array, i), so
// any machine can make any part of any rank's inputs again, bit for bit. All arithmetic is on
// integers, except one exact scaling: no compiler or device can round differently.
#pragma once
#include <cstdint>

#include "core/target.h"

namespace mkernel::app {

enum class Array : uint32_t { kA = 1, kB = 2, kBias = 3, kResidual = 4 };

/// Names one array of inputs. A rank's array counts its elements from 0, row-major, unpadded.
struct ArrayKey {
  uint64_t seed = 1;
  int rank = 0;
  int64_t iteration = 0;
  Array array = Array::kA;
};

/// Source: the finalizer of SplitMix64 (Steele, Lea, Flood 2014), a bijection of 64 bits.
MK_HD uint64_t mix(uint64_t x) {
  x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9u;
  x = (x ^ (x >> 27)) * 0x94d049bb133111ebu;
  return x ^ (x >> 31);
}

inline constexpr uint64_t kGoldenGamma = 0x9e3779b97f4a7c15u;

/// Where an array's values start in the generator's 2^64 words.
MK_HD uint64_t stream_of(const ArrayKey& key) {
  uint64_t x = mix(key.seed + kGoldenGamma);
  x = mix(x + kGoldenGamma * (static_cast<uint64_t>(key.rank) + 1));
  x = mix(x + kGoldenGamma * (static_cast<uint64_t>(key.iteration) + 1));
  return mix(x + kGoldenGamma * static_cast<uint64_t>(key.array));
}

/// A normal value (mean 0, variance 1) as the sum of twelve 16-bit uniforms, within +-6. The
/// variance of the sum is 2^32 - 1, so that the scale is a power of two.
MK_HD float normal(uint64_t stream, uint64_t index) {
  int32_t sum = -393210;  // minus the mean, 12 * 65535 / 2
  for (uint64_t w = 0; w < 3; ++w) {
    const uint64_t x = mix(stream + kGoldenGamma * (3 * index + w));
    sum +=
        static_cast<int32_t>((x & 0xffffu) + (x >> 16 & 0xffffu) + (x >> 32 & 0xffffu) + (x >> 48));
  }
  return static_cast<float>(sum) * 0x1p-16f;
}

}  // namespace mkernel::app
