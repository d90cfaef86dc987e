// Work space and flags of GEMM+ReduceScatter and GEMM+AllReduce, the same on every rank, and the
// rule by which slots are reused.
//
// Partial sums, sums of nodes and finished tiles travel tile by tile, each in a slot of its own.
// Slots are rings: the tile of round r uses what the same tile of round r - depth used, be it in
// this launch or in the one before.
//
// Words (u32, in the flag region of every rank; all only grow, compared with reached()). Values are
// epoch + round, where a launch uses as many epochs as it has rounds:
//   partial(gpu, node, slot)  writer: that rank of the node; reader: the collector of the slice of
//       `node`. The partial sum is there.
//   sum(node, slot)  writer: that node's collector, by network; reader: the owner.
//   credit(slice, ring)  writer: who reads what this rank computes for the slice, its collector,
//       or, if that is this rank, its owner; reader: this rank. All that the node, or all nodes,
//       sent for the slice in that round was read, so the slots are free, and the sources of what
//       went over the network too.
//   result(slice, slot)  writer: the owner, or the rank of this node that got it by network, or
//       the network; reader: this rank. The finished tile is there.
//   landed(gpu, node, ring), landed_rail(node, ring)  writer: a rank of the node, or one on the
//       rail; reader: the rank that sends it finished tiles, of the slice of `node` or of its own.
//       All of the slice in that round was read.
// Counters (gpu scope, this rank's blocks): tiles of a slice and round that are collected, or have
// landed. Who counts the last one sets it back to the plan's first epoch before it gives credit;
// nobody counts again before that.
#pragma once
#include <cstdint>

#include "core/maths.h"
#include "core/target.h"
#include "protocol/tile_output.h"
#include "schedule/cluster.h"

namespace mkernel {

struct ReduceLayout {
  ClusterShape cluster;
  uint32_t depth = 1;          // rounds that have slots at the same time
  uint32_t slots = 0;          // per slice: depth * tiles of a round
  bool gathers = false;        // finished tiles go to all ranks
  uint64_t partial_bytes = 0;  // of a slot
  uint64_t result_bytes = 0;
  uint32_t first = 0;  // first flag of the plan

  // What follows from the above: set by derive(), since working it out costs a device registers.
  // Where each kind of flag begins, and where the last one ends.
  uint32_t sums_at = 0, credits_at = 0, collected_at = 0, results_at = 0, landed_at = 0,
           landed_rail_at = 0, landings_at = 0, end = 0;
  // Bytes between the partial sums of two ranks and of two nodes, and where others begin.
  uint64_t partial_stride = 0, sum_stride = 0, sums_in_at = 0, sums_out_at = 0,
           results_bytes_at = 0;

  /// To be called once all fields above are set. Work space lies in the order: partial sums that
  /// come, sums of nodes that come, sums of the node that go, finished tiles.
  constexpr void derive() {
    const uint32_t gpus = cluster.gpus - 1, nodes = cluster.nodes - 1, world = cluster.world();
    const uint32_t results = gathers && world > 1 ? world : 0;
    sums_at = first + gpus * cluster.nodes * slots;
    credits_at = sums_at + nodes * slots;
    collected_at = credits_at + world * depth;
    results_at = collected_at + cluster.nodes * depth;
    landed_at = results_at + results * slots;
    landed_rail_at = landed_at + (results == 0 ? 0 : gpus * cluster.nodes * depth);
    landings_at = landed_rail_at + (results == 0 ? 0 : nodes * depth);
    end = landings_at + results * depth;
    sum_stride = slots * partial_bytes;
    partial_stride = cluster.nodes * sum_stride;
    sums_in_at = gpus * partial_stride;
    sums_out_at = sums_in_at + nodes * sum_stride;
    results_bytes_at = sums_out_at + nodes * sum_stride;
  }
  constexpr uint32_t num_flags() const { return end - first; }
  constexpr uint64_t bytes() const {
    const bool results = gathers && cluster.world() > 1;
    return result_offset(results ? cluster.world() : 0, 0);
  }

  // Flags. `self` is who has them.
  MK_HD constexpr uint32_t partial(uint32_t gpu, uint32_t self, uint32_t node,
                                   uint32_t slot) const {
    return first + (among_others(gpu, self) * cluster.nodes + node) * slots + slot;
  }
  MK_HD constexpr uint32_t sum(uint32_t node, uint32_t self, uint32_t slot) const {
    return sums_at + among_others(node, self) * slots + slot;
  }
  MK_HD constexpr uint32_t credit(uint32_t slice, uint32_t ring) const {
    return credits_at + slice * depth + ring;
  }
  MK_HD constexpr uint32_t collected(uint32_t node, uint32_t ring) const {
    return collected_at + node * depth + ring;
  }
  MK_HD constexpr uint32_t result(uint32_t slice, uint32_t slot) const {
    return results_at + slice * slots + slot;
  }
  MK_HD constexpr uint32_t landed(uint32_t gpu, uint32_t self, uint32_t node, uint32_t ring) const {
    return landed_at + (among_others(gpu, self) * cluster.nodes + node) * depth + ring;
  }
  MK_HD constexpr uint32_t landed_rail(uint32_t node, uint32_t self, uint32_t ring) const {
    return landed_rail_at + among_others(node, self) * depth + ring;
  }
  MK_HD constexpr uint32_t landings(uint32_t slice, uint32_t ring) const {
    return landings_at + slice * depth + ring;
  }

  // Bytes from the beginning of the work space.
  MK_HD constexpr uint64_t partial_offset(uint32_t gpu, uint32_t self, uint32_t node,
                                          uint32_t slot) const {
    return among_others(gpu, self) * partial_stride + node * sum_stride + slot * partial_bytes;
  }
  MK_HD constexpr uint64_t sum_in_offset(uint32_t node, uint32_t self, uint32_t slot) const {
    return sums_in_at + among_others(node, self) * sum_stride + slot * partial_bytes;
  }
  MK_HD constexpr uint64_t sum_out_offset(uint32_t node, uint32_t self, uint32_t slot) const {
    return sums_out_at + among_others(node, self) * sum_stride + slot * partial_bytes;
  }
  MK_HD constexpr uint64_t result_offset(uint32_t slice, uint32_t slot) const {
    return results_bytes_at + (uint64_t{slice} * slots + slot) * result_bytes;
  }
};

}  // namespace mkernel
