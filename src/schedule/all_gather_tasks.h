// What one rank moves in an all-gather, in which order. Pure.
//
// All ranks walk their peers downwards (rank - 1, rank - 2, ...), so at any step every link carries
// one slice, and a receiver gets its peers' slices in the order rank + 1, rank + 2, ..., which is
// the order in which GatherTileOrder uses them.
#pragma once
#include <cstdint>

#include "core/target.h"
#include "schedule/cluster.h"
#include "schedule/row_chunks.h"

namespace mkernel {

struct GatherTask {
  enum class Kind : uint8_t {
    kCopy,  // into the work space of dst, a rank of this node, maybe this one
    kSend,  // to dst, a rail peer, out of this rank's work space
  };
  Kind kind;
  uint32_t slice;  // the rank whose rows these are
  uint32_t chunk;
  uint32_t dst;
};

/// Tasks in the order in which they are to be claimed: own rows to the work space and the first
/// rail peer, to the other rail peers, to the local peers; then rows from the network to the local
/// peers. A task waits only for tasks before it or for other ranks.
struct GatherTasks {
  ClusterShape cluster;
  ChunkMap chunks;
  uint32_t rank = 0;
  bool stage_own = false;      // own rows are copied into the own work space too
  bool engine_pushes = false;  // own rows go to local peers by copy engine, not by tasks

  MK_HD constexpr uint32_t size() const {
    return num_stage() + num_send() + (engine_pushes ? 0 : num_pushes()) + num_forward();
  }

  /// The copies of own rows to local peers, in the order in which they are wanted.
  MK_HD constexpr uint32_t num_pushes() const { return chunks.max_chunks() * (cluster.gpus - 1); }
  MK_HD constexpr GatherTask push(uint32_t i) const {
    const uint32_t step = i / chunks.max_chunks() + 1;
    return {GatherTask::Kind::kCopy, rank, i % chunks.max_chunks(),
            cluster.local_peer(rank, cluster.gpus - step)};
  }

  /// Task i. Its chunk may not exist on a shorter slice (ChunkMap::chunk(...).count is 0).
  MK_HD constexpr GatherTask task(uint32_t i) const {
    const uint32_t per_slice = chunks.max_chunks();
    if (i < num_stage()) return stage_task(i);
    i -= num_stage();
    if (i < num_send()) {
      const uint32_t step = i / per_slice + 2;
      return {GatherTask::Kind::kSend, rank, i % per_slice,
              cluster.rail_peer(rank, cluster.nodes - step)};
    }
    i -= num_send();
    if (engine_pushes) return forward_task(i);
    return i < num_pushes() ? push(i) : forward_task(i - num_pushes());
  }

 private:
  MK_HD constexpr bool sends() const { return cluster.nodes > 1; }
  // A staged chunk goes to the first rail peer at once.
  MK_HD constexpr uint32_t steps_per_staged_chunk() const {
    return (stage_own ? 1 : 0) + (sends() ? 1 : 0);
  }
  MK_HD constexpr uint32_t num_stage() const {
    return chunks.max_chunks() * steps_per_staged_chunk();
  }
  MK_HD constexpr uint32_t num_send() const {
    return sends() ? chunks.max_chunks() * (cluster.nodes - 2) : 0;
  }
  MK_HD constexpr uint32_t num_forward() const {
    return chunks.max_chunks() * (cluster.nodes - 1) * (cluster.gpus - 1);
  }

  MK_HD constexpr GatherTask stage_task(uint32_t i) const {
    const uint32_t chunk = i / steps_per_staged_chunk();
    if (stage_own && i % steps_per_staged_chunk() == 0)
      return {GatherTask::Kind::kCopy, rank, chunk, rank};
    return {GatherTask::Kind::kSend, rank, chunk, cluster.rail_peer(rank, cluster.nodes - 1)};
  }
  MK_HD constexpr GatherTask forward_task(uint32_t i) const {
    const uint32_t dsts = cluster.gpus - 1, per_slice = chunks.max_chunks() * dsts;
    const uint32_t in_slice = i % per_slice;
    return {GatherTask::Kind::kCopy, cluster.rail_peer(rank, i / per_slice + 1), in_slice / dsts,
            cluster.local_peer(rank, dsts - in_slice % dsts)};
  }
};

}  // namespace mkernel
