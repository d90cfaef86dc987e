// What the two ends of a staged write tell each other: the header in a slot, and the 32 bits with
// which a piece or its credit arrives.
#pragma once
#include <cstdint>

#include "network/transport.h"

namespace mkernel::libfabric {

struct StagingConfig {
  uint32_t rank;
  uint32_t num_ranks;
  uint32_t slots;  // per pair of ranks and direction
  uint64_t chunk_bytes;
};

struct PieceHeader {
  uint64_t write;    // the number of the write among those from this sender to this receiver
  uint64_t address;  // in the receiver's heap; of a flag its number
  uint64_t bytes;
  uint32_t pieces;  // of the write
  uint32_t value;
  Write::Kind kind;
};
/// The header comes first, in a line of its own.
inline constexpr uint64_t kHeaderBytes = 64;
static_assert(sizeof(PieceHeader) <= kHeaderBytes);

constexpr uint64_t slot_bytes(const StagingConfig& c) {
  return kHeaderBytes + (c.chunk_bytes + kHeaderBytes - 1) / kHeaderBytes * kHeaderBytes;
}
/// Where a slot lies in the buffers that a rank has for all others.
constexpr uint64_t slot_offset(const StagingConfig& c, uint32_t peer, uint32_t slot) {
  return (uint64_t{peer} * c.slots + slot) * slot_bytes(c);
}

struct Notice {
  enum class Kind : uint8_t {
    kPiece,    // the slot has been filled
    kCredit,   // its piece is in the heap
    kRefused,  // its piece has no place in the heap
  };
  uint32_t rank;  // who sends it; 16 bits
  Kind kind;
  uint32_t slot;  // 14 bits
};
inline constexpr uint32_t kSlotBits = 14;

constexpr uint32_t encode(const Notice& n) {
  return n.rank << 16 | static_cast<uint32_t>(n.kind) << kSlotBits | n.slot;
}
constexpr Notice decode_notice(uint32_t bits) {
  return {.rank = bits >> 16,
          .kind = static_cast<Notice::Kind>(bits >> kSlotBits & 3),
          .slot = bits & ((1u << kSlotBits) - 1)};
}

}  // namespace mkernel::libfabric
