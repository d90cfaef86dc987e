// What the ranks of one process share, and what each of them owns: machine, heap, link to the
// network, reports of failures. Contexts, buffers and plans keep it alive.
#pragma once
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include <mkernel/context.h>
#include <mkernel/options.h>
#include <mkernel/status.h>

#include "command/queue.h"
#include "core/watchdog.h"
#include "memory/symmetric_heap.h"
#include "operators/machine.h"
#include "operators/wait_limits.h"
#include "protocol/launch_state.h"
#include "proxy/proxy.h"
#include "schedule/cluster.h"

namespace mkernel::detail {

/// Work space of one plan on one rank. Device pointers.
struct PlanRank {
  HeapRegionPtr region;
  FlagRangePtr flags;
  LaunchState* state = nullptr;
  char** peer_slots = nullptr;      // table of the node's regions, by gpu index
  uint32_t** peer_flags = nullptr;  // table of the node's flag regions
  std::vector<char*> host_slots;    // the same tables, for the host
  std::vector<uint32_t*> host_flags;
};

class Cluster;

/// The work space of one plan on all ranks of this process. Made when the first of them asks.
struct PlanSpace {
  PlanSpace(Cluster& owner, std::string of) : cluster(owner), signature(std::move(of)) {}
  ~PlanSpace();
  PlanSpace(const PlanSpace&) = delete;
  PlanSpace& operator=(const PlanSpace&) = delete;

  Cluster& cluster;
  std::string signature;     // what every rank must have asked for
  uint32_t first_epoch = 0;  // before the first launch
  std::vector<PlanRank> ranks;
  uint32_t joined = 0;  // ranks that have asked
};

/// One rank's parts. Destroyed in reverse order: the proxy stops before its memory goes.
struct RankParts {
  std::unique_ptr<Machine> machine;
  std::unique_ptr<SymmetricHeap> heap;
  uint32_t* fault_claim = nullptr;  // device memory
  FaultRecord* fault = nullptr;     // pinned; of its blocks
  CommandQueue queue;
  uint64_t* queue_head = nullptr;  // device memory
  std::unique_ptr<Proxy> proxy;    // only where there are several nodes

  uint64_t num_plans = 0;            // that this rank has asked for
  RankStatistics totals;             // of plans that are gone
  std::vector<LaunchState*> states;  // of live plans
};

/// Threads: any.
class Cluster {
 public:
  static Result<std::shared_ptr<Cluster>> create(const ClusterOptions& options);
  ~Cluster();

  const ClusterOptions& options() const { return options_; }
  const ClusterShape& shape() const { return shape_; }
  Machine& machine(uint32_t rank) { return *parts_[rank].machine; }
  const CommandQueue& queue(uint32_t rank) const { return parts_[rank].queue; }
  std::string transport() const { return shape_.nodes > 1 ? "loopback" : "none"; }

  /// The watchdog of a rank's blocks.
  Watchdog watchdog(uint32_t rank) const;

  /// ok, or the first report of a failed wait or write on any rank.
  Status status() const;

  /// Work space for a rank's next plan: `bytes` of heap and `flags` flags that hold first_epoch.
  /// Errors: invalid_argument if another rank's plan of the same number has another signature.
  Result<std::shared_ptr<PlanSpace>> join_plan(uint32_t rank, const std::string& signature,
                                               uint64_t bytes, uint32_t flags);

  Result<RankStatistics> statistics(uint32_t rank);

 private:
  friend struct PlanSpace;
  explicit Cluster(const ClusterOptions& options)
      : options_(options),
        limits_(wait_limits(options)),
        shape_{static_cast<uint32_t>(options.nodes), static_cast<uint32_t>(options.gpus)} {}

  Status add_rank(uint32_t rank);
  Status add_queue(uint32_t rank);
  Status add_network();
  Status fill_plan(PlanSpace& space, uint64_t bytes, uint32_t flags);
  uint32_t most_regions() const;
  Status fill_plan_rank(PlanSpace& space, uint32_t rank, uint64_t bytes, uint32_t flags);
  Status link_plan_rank(PlanSpace& space, uint32_t rank);
  /// Waits until the network has completed all that the rank's kernels asked for.
  void drain(uint32_t rank);
  void retire(PlanSpace& space);
  void retire_rank(PlanRank& mine, uint32_t rank);
  std::optional<Status> find_fault() const;
  void add_to(RankStatistics& sum, const LaunchState& s) const;

  const ClusterOptions options_;
  const WaitLimits limits_;
  const ClusterShape shape_;
  std::vector<RankParts> parts_;
  uint32_t* abort_ = nullptr;  // pinned memory of rank 0, read by all

  mutable std::mutex fault_mutex_;
  mutable std::optional<Status> fault_;  // the first one found; it stays the answer

  std::mutex mutex_;                               // guards the plans and the statistics
  std::vector<std::shared_ptr<PlanSpace>> plans_;  // by number; null once all ranks have joined
  uint32_t next_first_epoch_ = 0;
};

/// A Context's handle to its cluster.
class Rank {
 public:
  Rank(std::shared_ptr<Cluster> cluster, uint32_t rank)
      : cluster_(std::move(cluster)), rank_(rank) {}
  Cluster& cluster() const { return *cluster_; }
  uint32_t rank() const { return rank_; }
  Machine& machine() const { return cluster_->machine(rank_); }

 private:
  std::shared_ptr<Cluster> cluster_;
  uint32_t rank_;
};

}  // namespace mkernel::detail
