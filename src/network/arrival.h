// How a receiver is told that a chunk has arrived: decided here, from what a link promises, and
// nowhere else.
//   in-order links:   the chunk, and behind it a write of the epoch into its flag;
//   unordered links:  the chunk carries an immediate, {flag: 16 bits, epoch: 16 bits}; the
//                     receiver's proxy restores the epoch and raises the flag itself. A flag
//                     written by the network could overtake its data there.
#pragma once
#include <array>
#include <cstdint>
#include <string>

#include <mkernel/status.h>

#include "core/flag_word.h"
#include "core/target.h"
#include "network/transport.h"

namespace mkernel {

enum class ArrivalMethod : uint8_t { kFlagBehindData, kImmediate };

MK_HD constexpr ArrivalMethod arrival_method(const LinkTraits& traits) {
  return traits.in_order ? ArrivalMethod::kFlagBehindData : ArrivalMethod::kImmediate;
}

/// The most writes that one chunk takes.
MK_HD constexpr uint32_t max_writes_per_chunk(ArrivalMethod method) {
  return method == ArrivalMethod::kFlagBehindData ? 2 : 1;
}

inline constexpr uint32_t kEpochBits = 32 - kFlagBits;

MK_HD constexpr uint32_t encode_immediate(uint32_t flag, uint32_t epoch) {
  return (flag << kEpochBits) | (epoch & ((1u << kEpochBits) - 1));
}

struct Immediate {
  uint32_t flag;
  uint32_t epoch_bits;  // the low bits of the epoch
};

MK_HD constexpr Immediate decode_immediate(uint32_t value) {
  return {value >> kEpochBits, value & ((1u << kEpochBits) - 1)};
}

struct ResolvedEpoch {
  uint32_t epoch;
  bool stale;  // not newer than the flag: late or twice; it must raise nothing
};

/// The epoch nearest to the flag's `current` value that has these low bits. Right while a flag is
/// raised at least once in 32767 epochs; beyond, the wait for it ends in a timeout, never early.
MK_HD constexpr ResolvedEpoch resolve_epoch(uint32_t current, uint32_t epoch_bits) {
  constexpr uint32_t kMask = (1u << kEpochBits) - 1;
  constexpr uint32_t kHalf = 1u << (kEpochBits - 1);
  const uint32_t ahead = (epoch_bits - current) & kMask;
  if (ahead >= kHalf) return {current + ahead - (kMask + 1), true};
  return {current + ahead, ahead == 0};
}

/// Whether arrival of chunks with `num_flags` flags can be told over such a link.
/// Errors: invalid_argument, unsupported.
inline Status check_arrival(const LinkTraits& traits, uint64_t num_flags) {
  if (num_flags > kMaxFlags) {
    return {Code::kInvalidArgument, std::to_string(num_flags) + " flags: at most " +
                                        std::to_string(kMaxFlags) + " can be told apart"};
  }
  const ArrivalMethod method = arrival_method(traits);
  if (method == ArrivalMethod::kImmediate && traits.immediate_bits < 32) {
    return {Code::kUnsupported, "a network that reorders, with immediates of " +
                                    std::to_string(traits.immediate_bits) +
                                    " bits: telling arrival takes 32"};
  }
  if (traits.max_in_flight < max_writes_per_chunk(method)) {
    return {Code::kUnsupported, "a network with " + std::to_string(traits.max_in_flight) +
                                    " writes in flight: a chunk takes " +
                                    std::to_string(max_writes_per_chunk(method))};
  }
  return Status::ok();
}

/// The writes, in order of posting, that bring a chunk and then raise its flag.
struct ChunkWrites {
  std::array<Write, 2> writes;
  uint32_t count;
};

/// `chunk` holds everything but the kind, with the epoch as its value; bytes may be 0.
/// The writes get the ids chunk.id and chunk.id + 1.
inline ChunkWrites writes_of_chunk(ArrivalMethod method, const Write& chunk) {
  Write data = chunk;
  if (method == ArrivalMethod::kImmediate) {
    data.kind = Write::Kind::kDataImmediate;
    data.value = encode_immediate(chunk.flag, chunk.value);
    return {{data}, 1};
  }
  data.kind = Write::Kind::kData;
  Write flag{.kind = Write::Kind::kFlag,
             .peer = chunk.peer,
             .flag = chunk.flag,
             .value = chunk.value,
             .id = chunk.id};
  if (chunk.bytes == 0) return {{flag}, 1};
  flag.id = chunk.id + 1;
  return {{data, flag}, 2};
}

}  // namespace mkernel
