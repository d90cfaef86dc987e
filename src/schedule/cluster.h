// Who is who in a cluster of `nodes` times `gpus` ranks: pure maps between ranks, nodes and GPUs.
#pragma once
#include <cstdint>

#include "core/target.h"

namespace mkernel {

/// rank = node * gpus + gpu. Local peers share the node; rail peers have the same gpu index on
/// another node and are the only ranks that a rank talks to over the network.
struct ClusterShape {
  uint32_t nodes = 1;
  uint32_t gpus = 1;

  MK_HD constexpr uint32_t world() const { return nodes * gpus; }
  MK_HD constexpr uint32_t rank(uint32_t node, uint32_t gpu) const { return node * gpus + gpu; }
  MK_HD constexpr uint32_t node_of(uint32_t rank) const { return rank / gpus; }
  MK_HD constexpr uint32_t gpu_of(uint32_t rank) const { return rank % gpus; }

  /// The rank `step` GPUs, at most all, further in the same node, around the node's end.
  MK_HD constexpr uint32_t local_peer(uint32_t rank, uint32_t step) const {
    return this->rank(node_of(rank), around(gpu_of(rank) + step, gpus));
  }
  /// The rank with the same gpu index `step` nodes, at most all, further, around the cluster's end.
  MK_HD constexpr uint32_t rail_peer(uint32_t rank, uint32_t step) const {
    return this->rank(around(node_of(rank) + step, nodes), gpu_of(rank));
  }
  MK_HD constexpr bool same_node(uint32_t a, uint32_t b) const { return node_of(a) == node_of(b); }

 private:
  // No remainder: divisions cost a device registers.
  MK_HD static constexpr uint32_t around(uint32_t i, uint32_t count) {
    return i < count ? i : i - count;
  }
};

}  // namespace mkernel
