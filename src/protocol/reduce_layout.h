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

  // Flags.
  MK_HD constexpr uint32_t partial(uint32_t gpu, uint32_t self, uint32_t node,
                                   uint32_t slot) const {
    return first + (among_others(gpu, self) * cluster.nodes + node) * slots + slot;
  }
  MK_HD constexpr uint32_t sum(uint32_t node, uint32_t self, uint32_t slot) const {
    return partial_end() + among_others(node, self) * slots + slot;
  }
  MK_HD constexpr uint32_t credit(uint32_t slice, uint32_t ring) const {
    return sum_end() + slice * depth + ring;
  }
  MK_HD constexpr uint32_t collected(uint32_t node, uint32_t ring) const {
    return credit_end() + node * depth + ring;
  }
  MK_HD constexpr uint32_t result(uint32_t slice, uint32_t slot) const {
    return collected_end() + slice * slots + slot;
  }
  MK_HD constexpr uint32_t landed(uint32_t gpu, uint32_t self, uint32_t node, uint32_t ring) const {
    return result_end() + (among_others(gpu, self) * cluster.nodes + node) * depth + ring;
  }
  MK_HD constexpr uint32_t landed_rail(uint32_t node, uint32_t self, uint32_t ring) const {
    return landed_end() + among_others(node, self) * depth + ring;
  }
  MK_HD constexpr uint32_t landings(uint32_t slice, uint32_t ring) const {
    return landed_rail_end() + slice * depth + ring;
  }
  MK_HD constexpr uint64_t num_flags() const {
    const uint64_t per_slot =
        uint64_t{others(cluster.gpus)} * cluster.nodes + others(cluster.nodes) + results();
    const uint64_t per_ring =
        uint64_t{cluster.world()} + cluster.nodes + 2 * uint64_t{results()} + others(cluster.nodes);
    return per_slot * slots + per_ring * depth;
  }

  // Bytes of work space, in the order: partial sums that come, sums of nodes that come, sums of
  // the node that go, finished tiles.
  MK_HD constexpr uint64_t partial_stride() const {
    return uint64_t{cluster.nodes} * slots * partial_bytes;
  }
  MK_HD constexpr uint64_t sum_stride() const { return slots * partial_bytes; }
  MK_HD constexpr uint64_t partial_offset(uint32_t gpu, uint32_t self, uint32_t node,
                                          uint32_t slot) const {
    return among_others(gpu, self) * partial_stride() + node * sum_stride() + slot * partial_bytes;
  }
  MK_HD constexpr uint64_t sum_in_offset(uint32_t node, uint32_t self, uint32_t slot) const {
    return others(cluster.gpus) * partial_stride() + among_others(node, self) * sum_stride() +
           slot * partial_bytes;
  }
  MK_HD constexpr uint64_t sum_out_offset(uint32_t node, uint32_t self, uint32_t slot) const {
    return sum_in_offset(node, self, slot) + others(cluster.nodes) * sum_stride();
  }
  MK_HD constexpr uint64_t result_offset(uint32_t slice, uint32_t slot) const {
    return others(cluster.gpus) * partial_stride() + 2 * others(cluster.nodes) * sum_stride() +
           (uint64_t{slice} * slots + slot) * result_bytes;
  }
  MK_HD constexpr uint64_t bytes() const { return result_offset(results(), 0); }

 private:
  MK_HD static constexpr uint32_t others(uint32_t count) { return count - 1; }
  MK_HD constexpr uint32_t results() const {
    return gathers && cluster.world() > 1 ? cluster.world() : 0;
  }
  MK_HD constexpr uint32_t partial_end() const {
    return first + others(cluster.gpus) * cluster.nodes * slots;
  }
  MK_HD constexpr uint32_t sum_end() const { return partial_end() + others(cluster.nodes) * slots; }
  MK_HD constexpr uint32_t credit_end() const { return sum_end() + cluster.world() * depth; }
  MK_HD constexpr uint32_t collected_end() const { return credit_end() + cluster.nodes * depth; }
  MK_HD constexpr uint32_t result_end() const { return collected_end() + results() * slots; }
  MK_HD constexpr uint32_t landed_end() const {
    return result_end() + (gathers ? others(cluster.gpus) * cluster.nodes * depth : 0);
  }
  MK_HD constexpr uint32_t landed_rail_end() const {
    return landed_end() + (gathers ? others(cluster.nodes) * depth : 0);
  }
};

}  // namespace mkernel
