// The host machine's block: two threads that stand for a thread block of a GPU.
// Thread 0 leads (waits, signals, feeds), thread 1 moves and multiplies. The leader moves nothing,
// so a barrier missing between a move and its signal is a race that ThreadSanitizer sees.
#pragma once
#include <barrier>
#include <cstdint>
#include <cstring>
#include <semaphore>

#include "host/host_gemm.h"
#include "protocol/tile_work.h"

namespace mkernel {

/// What the two threads of a block share.
struct HostBlockShared {
  std::barrier<> barrier{2};
  uint32_t word = 0;  // the leader's, for broadcast
  bool ok[2] = {true, true};

  // A pipe of one tile from the feeder to the multiplier; bounded, because the feeder always ends
  // with stop().
  std::binary_semaphore full{0};
  std::binary_semaphore empty{1};
  TileWork tile{};
  bool end = false;
};

class HostBlock {
 public:
  HostBlock(HostBlockShared& shared, int thread, const HostGemm& gemm)
      : shared_(shared), thread_(thread), gemm_(gemm) {}

  bool leader() const { return thread_ == 0; }
  void sync() { shared_.barrier.arrive_and_wait(); }

  bool all(bool ok) {
    shared_.ok[thread_] = ok;
    sync();
    const bool both = shared_.ok[0] && shared_.ok[1];
    sync();
    return both;
  }

  uint32_t broadcast(uint32_t value) {
    if (leader()) shared_.word = value;
    sync();
    const uint32_t word = shared_.word;
    sync();
    return word;
  }

  void copy_rows(const RowCopy& copy) {
    if (leader()) return;
    for (uint64_t i = 0; i < copy.rows; ++i)
      std::memcpy(copy.dst + i * copy.dst_pitch, copy.src + i * copy.src_pitch, copy.row_bytes);
  }

  template <class Feed, class Multiply>
  void split(Feed&& feed, Multiply&& multiply) {
    if (leader())
      feed();
    else
      multiply();
  }

  void feed(const TileWork& tile) {
    shared_.empty.acquire();
    shared_.tile = tile;
    shared_.full.release();
  }
  void stop() {
    shared_.empty.acquire();
    shared_.end = true;
    shared_.full.release();
  }
  bool take(TileWork* tile) {
    shared_.full.acquire();
    if (shared_.end) return false;
    *tile = shared_.tile;
    shared_.empty.release();
    return true;
  }
  void multiply(const TileWork& tile) { gemm_.multiply(tile); }

 private:
  HostBlockShared& shared_;
  int thread_;
  const HostGemm& gemm_;
};

}  // namespace mkernel
