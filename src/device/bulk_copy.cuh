// Copies between global memories by one thread of a block: pieces go through a ring of shared
// memory by bulk copies, several loads and several stores in flight.
#pragma once
#include <cstdint>

#include "device/ptx/fence.cuh"
#include "device/ptx/mbarrier.cuh"
#include "device/ptx/tma.cuh"
#include "protocol/tile_work.h"

namespace mkernel {

/// Use by one thread. Its progress is kept between copies, because barriers have phases.
class BulkCopier {
 public:
  static constexpr uint32_t kStages = 6;
  static constexpr uint32_t kPieceBytes = 32 << 10;
  static constexpr uint32_t kRingBytes = kStages * kPieceBytes;
  static constexpr uint32_t kBarrierBytes = kStages * 8;

  /// Shared memory: kRingBytes, 128-byte aligned, and kBarrierBytes.
  __device__ BulkCopier(uint32_t ring, uint32_t barriers) : ring_(ring), barriers_(barriers) {}

  /// Once, before the thread's first copy.
  __device__ void init() {
    for (uint32_t i = 0; i < kStages; ++i) ptx::mbarrier_init(barriers_ + i * 8, 1);
    ptx::fence_mbarrier_init();
  }

  /// True if bulk copies can carry it: all addresses and sizes are multiples of 16 bytes.
  __device__ static bool can_carry(const RowCopy& c) {
    const uint64_t all = reinterpret_cast<uintptr_t>(c.dst) | reinterpret_cast<uintptr_t>(c.src) |
                         c.dst_pitch | c.src_pitch | c.row_bytes;
    return all % 16 == 0;
  }

  /// Order: on return the bytes are visible to this thread, so that it may signal them.
  __device__ void copy(RowCopy c) {
    if (c.dst_pitch == c.row_bytes && c.src_pitch == c.row_bytes) {
      c.row_bytes *= c.rows;  // one long row
      c.rows = 1;
    }
    ptx::fence_proxy_async();  // the source may have come by ordinary stores
    Cursor load{c}, store{c};
    for (uint32_t i = 0; !store.at_end(); ++i) {
      if (!load.at_end()) {
        // This stage's last store must have been read; kStages - kAhead - 1 younger ones need not.
        ptx::bulk_wait_group_read<kStages - kAhead - 1>();
        begin_load(load);
        load.advance();
      }
      if (i < kAhead) continue;
      end_load();
      ptx::bulk_store(store.dst(), stage(stored_), store.bytes());
      ptx::bulk_commit_group();
      ++stored_;
      store.advance();
    }
    ptx::bulk_wait_group<0>();
    ptx::fence_proxy_async();
  }

 private:
  static constexpr uint32_t kAhead = 3;  // loads in flight

  /// Walks the pieces of a copy.
  struct Cursor {
    const RowCopy& c;
    uint64_t row = 0;
    uint64_t at = 0;  // in the row

    __device__ bool at_end() const { return row == c.rows; }
    __device__ uint32_t bytes() const {
      return static_cast<uint32_t>(min(c.row_bytes - at, uint64_t{kPieceBytes}));
    }
    __device__ char* dst() const { return c.dst + row * c.dst_pitch + at; }
    __device__ const char* src() const { return c.src + row * c.src_pitch + at; }
    __device__ void advance() {
      at += kPieceBytes;
      if (at < c.row_bytes) return;
      at = 0;
      ++row;
    }
  };

  __device__ uint32_t stage(uint32_t piece) const { return ring_ + piece % kStages * kPieceBytes; }
  __device__ uint32_t barrier(uint32_t piece) const { return barriers_ + piece % kStages * 8; }

  __device__ void begin_load(const Cursor& from) {
    ptx::mbarrier_arrive_expect_tx(barrier(loaded_), from.bytes());
    ptx::bulk_load(stage(loaded_), from.src(), from.bytes(), barrier(loaded_));
    ++loaded_;
  }
  // The load of the piece that is stored next.
  __device__ void end_load() const {
    while (!ptx::mbarrier_try_wait(barrier(stored_), stored_ / kStages % 2)) {
    }
  }

  uint32_t ring_;
  uint32_t barriers_;
  uint32_t loaded_ = 0;  // pieces, ever
  uint32_t stored_ = 0;
};

}  // namespace mkernel
