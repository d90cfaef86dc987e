// The memory that both ends of a staged link share, and what they tell each other (staged.h).
#pragma once
#include <cstdint>
#include <memory>

#include "memory/symmetric_heap.h"
#include "network/staged.h"

namespace mkernel {

struct PieceHeader {
  uint64_t write = 0;    // number of the write among those from this sender to this receiver
  uint64_t address = 0;  // in the receiver's heap; of a flag its number
  uint64_t bytes = 0;
  uint32_t num_pieces = 0;  // of the write
  uint32_t value = 0;
  Write::Kind kind = Write::Kind::kData;
  bool is_void = false;  // the sender has closed: not to be placed any more
};
inline constexpr uint64_t kHeaderBytes = 64;  // a line of its own
static_assert(sizeof(PieceHeader) <= kHeaderBytes);

/// What an immediate of the endpoint below says.
struct Notice {
  enum class Kind : uint8_t {
    kPiece,    // the slot has been filled
    kCredit,   // its piece is in the heap
    kRefused,  // its piece has no place in the heap
  };
  Kind kind;
  uint32_t rank;  // who says so: not every network tells
  uint32_t slot;
};
inline constexpr uint32_t kSlotBits = 14, kRankBits = 16;

constexpr uint32_t encode(const Notice& n) {
  return n.rank << (32 - kRankBits) | static_cast<uint32_t>(n.kind) << kSlotBits | n.slot;
}
constexpr Notice decode_notice(uint32_t bits) {
  return {.kind = static_cast<Notice::Kind>(bits >> kSlotBits & 3),
          .rank = bits >> (32 - kRankBits),
          .slot = bits & ((1u << kSlotBits) - 1)};
}

/// Host memory of the rank's device: a region of a heap of its own, as the endpoint below takes it.
class StagedSlots {
 public:
  static Result<std::unique_ptr<StagedSlots>> create(DeviceMemory& memory,
                                                     const StagedConfig& config);

  SymmetricHeap& heap() { return *heap_; }
  const HeapRegion& region() const { return *region_; }
  /// Heap address and memory of a slot for pieces to, or from, a peer. The same on all ranks.
  uint64_t address(bool is_incoming, uint32_t peer, uint32_t slot) const;
  char* data(bool is_incoming, uint32_t peer, uint32_t slot) const {
    return region_->data + (address(is_incoming, peer, slot) - region_->address);
  }

 private:
  explicit StagedSlots(const StagedConfig& config) : config_(config) {}
  uint64_t slot_bytes() const;

  const StagedConfig config_;
  std::unique_ptr<DeviceMemory> pinned_;
  std::unique_ptr<SymmetricHeap> heap_;
  HeapRegionPtr region_;
};

}  // namespace mkernel
