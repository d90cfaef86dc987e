// What the kernel asks of the network: write one chunk into a peer's heap, then raise one of the
// peer's flags. Packed in four 8-byte words; no field crosses a word.
#pragma once
#include <cstdint>

#include "core/target.h"

namespace mkernel {

/// One write. bytes == 0 raises the flag only. Bytes are named by heap addresses
/// (memory/heap_address.h).
struct Command {
  uint64_t local_address;   // address in the sender's heap
  uint64_t remote_address;  // address in the receiver's heap
  uint32_t bytes;           // contiguous; a chunk stays below 4 GiB
  uint32_t epoch;           // value that the flag gets
  uint32_t flag;            // index in the receiver's flag region
  uint16_t dst_rank;
};

/// A slot of the queue. `words[0]` is the commit word, published last:
/// [63:32] flag, [31:16] destination rank, [15:0] lap tag.
struct alignas(32) CommandSlot {
  uint64_t words[4];
};

/// Tag of a lap around the queue; never 0, so that a zeroed slot reads as empty in every lap.
MK_HD constexpr uint16_t lap_tag(uint64_t lap) { return static_cast<uint16_t>(lap % 0xffff + 1); }

MK_HD constexpr uint64_t commit_word(const Command& c, uint16_t tag) {
  return (uint64_t{c.flag} << 32) | (uint64_t{c.dst_rank} << 16) | tag;
}

}  // namespace mkernel
