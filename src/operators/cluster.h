// A cluster as one process sees it: the ranks that live here, with what each of them owns (machine,
// heap, link to the network, reports of failures), and how the others are reached. All ranks live
// here, or one, with the others in processes of their own. Contexts, buffers and plans keep it
// alive.
#pragma once
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include <mkernel/context.h>
#include <mkernel/options.h>
#include <mkernel/status.h>

#include "command/queue.h"
#include "core/watchdog.h"
#include "memory/mapped_heap.h"
#include "memory/symmetric_heap.h"
#include "operators/machine.h"
#include "operators/processes.h"
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

/// The work space of one plan on the ranks of this process. Made when the first of them asks.
struct PlanSpace {
  PlanSpace(Cluster& owner, std::string of) : cluster(owner), signature(std::move(of)) {}
  ~PlanSpace();
  PlanSpace(const PlanSpace&) = delete;
  PlanSpace& operator=(const PlanSpace&) = delete;

  const PlanRank& of(uint32_t rank) const;

  Cluster& cluster;
  std::string signature;        // what every rank must have asked for
  uint32_t first_epoch = 0;     // before the first launch
  uint64_t address = 0;         // of the region, the same on every rank; 0: none yet
  std::vector<PlanRank> ranks;  // of this process
  uint32_t joined = 0;          // of them, how many have asked
};

/// One rank's parts. Destroyed in reverse order: the proxy stops before its memory goes.
struct RankParts {
  std::unique_ptr<Machine> machine;
  std::unique_ptr<SymmetricHeap> heap;
  uint32_t* fault_claim = nullptr;  // device memory
  FaultRecord* fault = nullptr;     // pinned; of its blocks
  CommandQueue queue;
  ProducerWords* producers = nullptr;  // device memory; of the queue
  Endpoint* endpoint = nullptr;        // the proxy's
  std::unique_ptr<Proxy> proxy;        // only where there are several nodes

  uint64_t num_plans = 0;            // that this rank has asked for
  RankStatistics totals;             // of plans that are gone
  std::vector<LaunchState*> states;  // of live plans
};

/// Threads: any.
class Cluster {
 public:
  /// All ranks in this process.
  static Result<std::shared_ptr<Cluster>> create(const ClusterOptions& options);
  /// One rank, in a cluster of processes. Collective.
  static Result<std::shared_ptr<Cluster>> join(const ClusterOptions& options,
                                               const RendezvousOptions& rendezvous);
  ~Cluster();

  const ClusterOptions& options() const { return options_; }
  const ClusterShape& shape() const { return shape_; }
  /// The ranks that live here: num_local() from first_rank() on.
  uint32_t first_rank() const { return first_rank_; }
  uint32_t num_local() const { return num_local_; }
  Machine& machine(uint32_t rank) { return *local(rank).machine; }
  const CommandQueue& queue(uint32_t rank) const { return local(rank).queue; }
  std::string transport() const { return shape_.nodes > 1 ? options_.transport : "none"; }

  /// The watchdog of a rank's blocks.
  Watchdog watchdog(uint32_t rank) const;

  /// ok, or the first report of a failed wait or write on any rank.
  Status status() const;

  /// Work space for a rank's next plan: `bytes` of heap and `flags` flags that hold first_epoch.
  /// Between processes: collective.
  /// Errors: invalid_argument if another rank's plan of the same number has another signature.
  Result<std::shared_ptr<PlanSpace>> join_plan(uint32_t rank, const std::string& signature,
                                               uint64_t bytes, uint32_t flags);

  Result<RankStatistics> statistics(uint32_t rank);
  void wake_network(uint32_t rank) {
    if (Proxy* const proxy = local(rank).proxy.get(); proxy != nullptr) proxy->expect_commands();
  }

  /// What every rank says, by rank; `mine` is what the ranks of this process say. Collective
  /// between processes.
  Result<std::vector<std::string>> gather(const std::string& what, std::vector<std::string> mine);
  /// ok if every process says so. Collective between processes.
  Status agree(const std::string& what, const Status& mine);

 private:
  friend struct PlanSpace;
  Cluster(const ClusterOptions& options, uint32_t first_rank, uint32_t num_local)
      : options_(options),
        limits_(wait_limits(options)),
        shape_{static_cast<uint32_t>(options.nodes), static_cast<uint32_t>(options.gpus)},
        first_rank_(first_rank),
        num_local_(num_local) {}

  RankParts& local(uint32_t rank) { return parts_[rank - first_rank_]; }
  const RankParts& local(uint32_t rank) const { return parts_[rank - first_rank_]; }
  bool is_local(uint32_t rank) const { return rank - first_rank_ < num_local_; }
  bool are_peers(uint32_t a, uint32_t b) const;

  // Setting up.
  Status set_up(Result<Machines> machines);
  Status add_ranks(Machines machines);
  Status add_rank(uint32_t rank);
  Status add_queue(uint32_t rank);
  Status check_devices();
  Status map_heaps();
  Status add_network();
  Status connect(std::span<const std::unique_ptr<Endpoint>> endpoints);
  Status start_proxies(std::vector<std::unique_ptr<Endpoint>> endpoints);
  void close();

  // Plans.
  Status fill_plan(PlanSpace& space, uint64_t number, uint64_t bytes, uint32_t flags);
  Status start_plan(PlanSpace& space, const std::string& what);
  Status fill_plan_rank(PlanSpace& space, uint32_t rank, uint64_t bytes, uint32_t flags);
  Status check_addresses(const PlanSpace& space, const std::string& what);
  Status map_regions(PlanSpace& space);
  Status share_regions(PlanSpace& space, const std::string& what);
  Status link_plan_rank(PlanSpace& space, uint32_t rank);
  uint32_t most_regions() const;
  /// Waits until the network has completed all that the rank's kernels asked for.
  void drain(uint32_t rank);
  void retire(PlanSpace& space);
  void retire_rank(PlanRank& mine, uint32_t rank);
  void add_to(RankStatistics& sum, const LaunchState& s) const;

  std::optional<Status> find_fault() const;

  ClusterOptions options_;  // with what was left open as it was chosen
  const WaitLimits limits_;
  const ClusterShape shape_;
  const uint32_t first_rank_;
  const uint32_t num_local_;
  std::unique_ptr<Processes> processes_;  // null if all ranks live here
  std::vector<RankParts> parts_;          // of the ranks that live here
  // How heaps are reached, by rank: where they live, where they are mapped, or not at all (null).
  std::vector<std::unique_ptr<MappedHeap>> mapped_;
  std::vector<const HeapView*> views_;
  uint32_t* abort_ = nullptr;  // pinned memory of the first rank here, read by all here

  mutable std::mutex fault_mutex_;
  mutable std::optional<Status> fault_;  // the first one found; it stays the answer

  std::mutex mutex_;                               // guards the plans and the statistics
  std::vector<std::shared_ptr<PlanSpace>> plans_;  // by number; null once all here have joined
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
  /// Tells the rank's proxy, if it has one, that a launch is coming.
  void wake_network() const { cluster_->wake_network(rank_); }

 private:
  std::shared_ptr<Cluster> cluster_;
  uint32_t rank_;
};

}  // namespace mkernel::detail
