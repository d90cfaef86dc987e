// Two threads of the host machine that work together. Thread 0 leads (waits, signals), thread 1
// moves. The leader moves nothing, so a barrier missing between a move and its signal is a race
// that ThreadSanitizer sees.
#pragma once
#include <barrier>
#include <cstdint>
#include <cstring>

#include "core/sync.h"
#include "protocol/tile_work.h"

namespace mkernel {

/// What the two threads share.
struct HostTeamShared {
  std::barrier<> barrier{2};
  uint32_t word = 0;  // the leader's, for broadcast
  bool ok[2] = {true, true};
};

class HostTeam {
 public:
  HostTeam(HostTeamShared& shared, int thread) : team_(shared), thread_(thread) {}

  bool leader() const { return thread_ == 0; }
  void sync() { team_.barrier.arrive_and_wait(); }

  bool all(bool ok) {
    team_.ok[thread_] = ok;
    sync();
    const bool both = team_.ok[0] && team_.ok[1];
    sync();
    return both;
  }

  uint32_t broadcast(uint32_t value) {
    if (leader()) team_.word = value;
    sync();
    const uint32_t word = team_.word;
    sync();
    return word;
  }

  void copy_rows(const RowCopy& copy) {
    if (leader()) return;
    detail::dawdle();
    for (uint64_t i = 0; i < copy.rows; ++i)
      std::memcpy(copy.dst + i * copy.dst_pitch, copy.src + i * copy.src_pitch, copy.row_bytes);
  }

 private:
  HostTeamShared& team_;
  int thread_;
};

}  // namespace mkernel
