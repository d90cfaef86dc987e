#include "schedule/all_gather_tasks.h"

#include <gtest/gtest.h>

#include <map>
#include <set>
#include <tuple>
#include <vector>

namespace mkernel {
namespace {

using Kind = GatherTask::Kind;

GatherTasks tasks_of(ClusterShape cluster, uint64_t rows, uint32_t rank, bool stage_own) {
  return {cluster, {{rows, cluster.world()}, 4}, rank, stage_own};
}

const ClusterShape kClusters[] = {{1, 1}, {1, 2}, {2, 1}, {1, 5}, {5, 1}, {2, 4}, {3, 2}, {4, 4}};

TEST(GatherTasks, BringEveryChunkToEveryOtherRankOnce) {
  for (const ClusterShape& cluster : kClusters)
    for (const uint64_t rows : {0u, 1u, 5u, 37u, 64u}) {
      const ChunkMap chunks{{rows, cluster.world()}, 4};
      std::map<std::tuple<uint32_t, uint32_t, uint32_t>, int> got;  // (dst, slice, chunk)
      for (uint32_t r = 0; r < cluster.world(); ++r) {
        const GatherTasks tasks = tasks_of(cluster, rows, r, cluster.nodes > 1);
        for (uint32_t i = 0; i < tasks.size(); ++i) {
          const GatherTask t = tasks.task(i);
          if (chunks.chunk(t.slice, t.chunk).count != 0) ++got[{t.dst, t.slice, t.chunk}];
        }
      }
      for (uint32_t dst = 0; dst < cluster.world(); ++dst)
        for (uint32_t slice = 0; slice < cluster.world(); ++slice)
          for (uint32_t c = 0; c < chunks.max_chunks(); ++c) {
            const bool exists = chunks.chunk(slice, c).count != 0;
            const bool wanted = exists && (dst != slice || cluster.nodes > 1);
            EXPECT_EQ((got[{dst, slice, c}]), wanted ? 1 : 0)
                << cluster.nodes << "x" << cluster.gpus << " rows " << rows << " slice " << slice
                << " chunk " << c << " to " << dst;
          }
    }
}

TEST(GatherTasks, SendOnRailsAndCopyWithinTheNode) {
  for (const ClusterShape& cluster : kClusters)
    for (uint32_t r = 0; r < cluster.world(); ++r) {
      const GatherTasks tasks = tasks_of(cluster, 50, r, true);
      for (uint32_t i = 0; i < tasks.size(); ++i) {
        const GatherTask t = tasks.task(i);
        if (t.kind == Kind::kSend) {
          EXPECT_EQ(cluster.gpu_of(t.dst), cluster.gpu_of(r));
          EXPECT_FALSE(cluster.same_node(t.dst, r));
          EXPECT_EQ(t.slice, r) << "a rank sends its own rows only: no byte crosses a rail twice";
        } else {
          EXPECT_TRUE(cluster.same_node(t.dst, r));
        }
      }
    }
}

/// Executes tasks as soon as they may, in claiming order, with one block per rank: if that ends,
/// any number of blocks does, since more blocks only claim earlier.
TEST(GatherTasks, EndWithOneBlockPerRank) {
  for (const ClusterShape& cluster : kClusters) {
    const uint64_t rows = 37;
    std::set<std::tuple<uint32_t, uint32_t, uint32_t>> arrived;
    std::vector<uint32_t> next(cluster.world(), 0);
    const ChunkMap chunks{{rows, cluster.world()}, 4};
    for (bool progress = true; progress;) {
      progress = false;
      for (uint32_t r = 0; r < cluster.world(); ++r) {
        const GatherTasks tasks = tasks_of(cluster, rows, r, cluster.nodes > 1);
        if (next[r] == tasks.size()) continue;
        const GatherTask t = tasks.task(next[r]);
        const bool exists = chunks.chunk(t.slice, t.chunk).count != 0;
        const bool from_slot = t.kind == Kind::kSend || t.slice != r;
        if (exists && from_slot && !arrived.contains({r, t.slice, t.chunk})) continue;
        if (exists) arrived.insert({t.dst, t.slice, t.chunk});
        ++next[r];
        progress = true;
      }
    }
    for (uint32_t r = 0; r < cluster.world(); ++r)
      EXPECT_EQ(next[r], tasks_of(cluster, rows, r, cluster.nodes > 1).size())
          << cluster.nodes << "x" << cluster.gpus << " rank " << r << " is stuck";
  }
}

}  // namespace
}  // namespace mkernel
