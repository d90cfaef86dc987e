#include "operators/cluster.h"

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <thread>

#include "network/loopback.h"

namespace mkernel::detail {
namespace {

/// Commands that a rank's kernels can be ahead of its network: a few launches' worth of chunks.
constexpr uint32_t kLog2QueueCapacity = 10;

Status check_options(const ClusterOptions& o) {
  const auto refuse = [](const std::string& what, auto value, const std::string& allowed) {
    return Status(Code::kInvalidArgument, what + " = " + std::to_string(value) + ": " + allowed);
  };
  if (o.nodes < 1) return refuse("nodes", o.nodes, "must be at least 1");
  if (o.gpus < 1) return refuse("gpus", o.gpus, "must be at least 1");
  // A command names its destination with 16 bits.
  if (int64_t{o.nodes} * o.gpus > 65535)
    return refuse("nodes * gpus", int64_t{o.nodes} * o.gpus, "must be at most 65535");
  constexpr int64_t kMaxTimeoutUs = INT64_MAX / 1000;  // limits are counted in nanoseconds
  if (o.timeout_us <= 0 || o.timeout_us > kMaxTimeoutUs)
    return refuse("timeout_us", o.timeout_us, "must be 1 to " + std::to_string(kMaxTimeoutUs));
  if (o.transport != "auto" && o.transport != "loopback") {
    const bool is_planned =
        o.transport == "verbs" || o.transport == "efa" || o.transport == "libfabric";
    return Status(is_planned ? Code::kUnsupported : Code::kInvalidArgument,
                  "transport = " + o.transport + ": this build has auto and loopback");
  }
  return check_loopback({.link = o.loopback},
                        static_cast<size_t>(o.nodes) * static_cast<size_t>(o.gpus));
}

const char* place_name(Place place) {
  switch (place) {
    case Place::kNone: break;
    case Place::kSlotFree: return "the end of an earlier launch (slot";
    case Place::kChunkArrived: return "rows (chunk";
    case Place::kSumSlotFree: return "sums of an earlier round to be read (slice";
    case Place::kPartialArrived: return "partial sums (slice";
    case Place::kNodeSumArrived: return "the sums of a node (slice";
    case Place::kResultArrived: return "finished rows (slice";
    case Place::kResultSlotFree: return "finished rows of an earlier round to be read (slice";
    case Place::kQueueSpace: return "room in the command queue (flag";
    case Place::kTransport: return "the network (flag";
  }
  return "nothing (";
}

Status status_of(const FaultRecord& f) {
  return Status(Code::kTimeout, "rank " + std::to_string(f.rank) + " waited for " +
                                    place_name(f.place) + " " + std::to_string(f.chunk) +
                                    ") of rank " + std::to_string(f.peer) + ": expected epoch " +
                                    std::to_string(f.expected) + ", seen " +
                                    std::to_string(f.seen));
}

/// Zeroed device memory for a few words.
Result<void*> allocate_zeroed(DeviceMemory& memory, uint64_t bytes) {
  Result<void*> p = memory.allocate(bytes);
  if (!p) return p;
  const std::vector<char> zeros(bytes, 0);
  MK_RETURN_IF_ERROR(memory.upload(*p, zeros.data(), bytes));
  return p;
}

}  // namespace

Result<std::shared_ptr<Cluster>> Cluster::create(const ClusterOptions& options) {
  MK_RETURN_IF_ERROR(check_options(options));
  std::shared_ptr<Cluster> cluster(new Cluster(options));
  cluster->next_first_epoch_ = options.first_epoch;
  const auto ranks = static_cast<int>(cluster->shape_.world());
  Result<Machines> machines = options.device == DeviceKind::kHost ? create_host_machines(ranks)
                                                                  : create_cuda_machines(ranks);
  if (!machines) return machines.status();
  cluster->parts_.resize(cluster->shape_.world());
  for (uint32_t rank = 0; rank < cluster->shape_.world(); ++rank) {
    cluster->parts_[rank].machine = std::move((*machines)[rank]);
    MK_RETURN_IF_ERROR(cluster->add_rank(rank));
  }
  if (cluster->shape_.nodes > 1) MK_RETURN_IF_ERROR(cluster->add_network());
  return cluster;
}

Cluster::~Cluster() {
  // Every proxy must have stopped before any heap that it may write to goes.
  for (RankParts& parts : parts_)
    if (parts.proxy) (void)parts.proxy->stop();
  for (RankParts& parts : parts_) parts.proxy.reset();
}

Status Cluster::add_rank(uint32_t rank) {
  RankParts& parts = parts_[rank];
  DeviceMemory& memory = parts.machine->memory();
  auto heap = SymmetricHeap::create(memory, rank, options_.heap_bytes_limit);
  if (!heap) return heap.status();
  parts.heap = std::move(heap.value());
  auto claim = allocate_zeroed(memory, sizeof(uint32_t));
  if (!claim) return claim.status();
  parts.fault_claim = static_cast<uint32_t*>(*claim);
  auto fault = memory.allocate_pinned(sizeof(FaultRecord));
  if (!fault) return fault.status();
  parts.fault = static_cast<FaultRecord*>(*fault);
  if (rank == 0) {
    auto abort = memory.allocate_pinned(sizeof(uint32_t));
    if (!abort) return abort.status();
    abort_ = static_cast<uint32_t*>(*abort);
  }
  return shape_.nodes > 1 ? add_queue(rank) : Status::ok();
}

Status Cluster::add_queue(uint32_t rank) {
  RankParts& parts = parts_[rank];
  DeviceMemory& memory = parts.machine->memory();
  auto slots = memory.allocate_pinned(sizeof(CommandSlot) << kLog2QueueCapacity);
  if (!slots) return slots.status();
  auto tail = memory.allocate_pinned(sizeof(uint64_t));
  if (!tail) return tail.status();
  auto head = allocate_zeroed(memory, sizeof(uint64_t));
  if (!head) return head.status();
  parts.queue_head = static_cast<uint64_t*>(*head);
  parts.queue = CommandQueue(static_cast<CommandSlot*>(*slots), parts.queue_head,
                             static_cast<uint64_t*>(*tail), kLog2QueueCapacity);
  return Status::ok();
}

Status Cluster::add_network() {
  std::vector<SymmetricHeap*> heaps;
  for (RankParts& parts : parts_) heaps.push_back(parts.heap.get());
  auto endpoints = create_loopback({.link = options_.loopback}, heaps);
  if (!endpoints) return endpoints.status();
  for (uint32_t rank = 0; rank < shape_.world(); ++rank) {
    RankParts& parts = parts_[rank];
    auto proxy = Proxy::start({.rank = rank,
                               .num_ranks = shape_.world(),
                               .queue = parts.queue,
                               .endpoint = std::move((*endpoints)[rank]),
                               .heap = parts.heap.get(),
                               .abort = abort_,
                               .limit_ns = static_cast<uint64_t>(options_.timeout_us) * 1000});
    if (!proxy) return proxy.status();
    parts.proxy = std::move(proxy.value());
  }
  return Status::ok();
}

Watchdog Cluster::watchdog(uint32_t rank) const {
  const RankParts& parts = parts_[rank];
  return {abort_, parts.fault_claim, parts.fault, static_cast<uint64_t>(options_.timeout_us) * 1000,
          rank};
}

Status Cluster::status() const {
  if (load_acquire<Scope::kSys>(abort_) == 0) return Status::ok();
  const std::lock_guard lock(fault_mutex_);
  if (!fault_) fault_ = find_fault();
  return fault_ ? *fault_ : Status(Code::kPeerFailed, "a rank of this cluster reported a failure");
}

std::optional<Status> Cluster::find_fault() const {
  // What the network reported is the cause; that others then waited in vain is its effect.
  for (const RankParts& parts : parts_)
    if (parts.proxy && parts.proxy->fault()) return parts.proxy->error();
  for (const RankParts& parts : parts_)
    if (load_acquire<Scope::kSys>(&parts.fault->tripped) != 0) return status_of(*parts.fault);
  return std::nullopt;  // its report is still being written
}

Result<std::shared_ptr<PlanSpace>> Cluster::join_plan(uint32_t rank, const std::string& signature,
                                                      uint64_t bytes, uint32_t flags) {
  MK_RETURN_IF_ERROR(status());
  std::shared_ptr<PlanSpace> space;  // outlives the lock: retiring one takes it
  const std::lock_guard lock(mutex_);
  const uint64_t number = parts_[rank].num_plans;
  if (number == plans_.size()) {
    space = std::make_shared<PlanSpace>(*this, signature);
    if (const Status filled = fill_plan(*space, bytes, flags); !filled) {
      for (RankParts& parts : parts_) parts.heap->skip_regions_to(most_regions());
      return filled;
    }
    plans_.push_back(space);
  }
  space = plans_[number];
  if (space->signature != signature)
    return Status(Code::kInvalidArgument,
                  "rank " + std::to_string(rank) + " makes plan " + std::to_string(number) +
                      " for " + signature + ", another rank made it for " + space->signature +
                      ": all ranks must make the same plans in the same order");
  ++parts_[rank].num_plans;
  if (++space->joined == shape_.world()) plans_[number].reset();
  return space;
}

Status Cluster::fill_plan(PlanSpace& space, uint64_t bytes, uint32_t flags) {
  space.first_epoch = next_first_epoch_;
  space.ranks.resize(shape_.world());
  for (uint32_t r = 0; r < shape_.world(); ++r)
    MK_RETURN_IF_ERROR(fill_plan_rank(space, r, bytes, flags));
  for (uint32_t r = 0; r < shape_.world(); ++r) MK_RETURN_IF_ERROR(link_plan_rank(space, r));
  return Status::ok();
}

uint32_t Cluster::most_regions() const {
  uint32_t most = 0;
  for (const RankParts& parts : parts_) most = std::max(most, parts.heap->num_regions());
  return most;
}

Status Cluster::fill_plan_rank(PlanSpace& space, uint32_t rank, uint64_t bytes, uint32_t flags) {
  RankParts& parts = parts_[rank];
  PlanRank& mine = space.ranks[rank];
  auto region = parts.heap->allocate(bytes);
  if (!region) return region.status();
  mine.region = std::move(region.value());
  auto range = parts.heap->allocate_flags(flags, space.first_epoch);
  if (!range) return range.status();
  mine.flags = std::move(range.value());
  if (mine.region->address != space.ranks[0].region->address ||
      mine.flags->first != space.ranks[0].flags->first)
    return Status(Code::kInternal, "rank " + std::to_string(rank) +
                                       ": work space at another address than on rank 0");
  auto state = parts.machine->memory().allocate(sizeof(LaunchState));
  if (!state) return state.status();
  mine.state = static_cast<LaunchState*>(*state);
  LaunchState fresh;
  fresh.epoch = space.first_epoch + 1;
  MK_RETURN_IF_ERROR(parts.machine->memory().upload(mine.state, &fresh, sizeof fresh));
  parts.states.push_back(mine.state);
  return Status::ok();
}

Status Cluster::link_plan_rank(PlanSpace& space, uint32_t rank) {
  DeviceMemory& memory = parts_[rank].machine->memory();
  PlanRank& mine = space.ranks[rank];
  for (uint32_t gpu = 0; gpu < shape_.gpus; ++gpu) {
    const uint32_t peer = shape_.rank(shape_.node_of(rank), gpu);
    mine.host_slots.push_back(space.ranks[peer].region->data);
    mine.host_flags.push_back(parts_[peer].heap->flag_region());
  }
  const uint64_t table_bytes = shape_.gpus * sizeof(void*);
  auto slots = memory.allocate(table_bytes);
  if (!slots) return slots.status();
  mine.peer_slots = static_cast<char**>(*slots);
  auto flags = memory.allocate(table_bytes);
  if (!flags) return flags.status();
  mine.peer_flags = static_cast<uint32_t**>(*flags);
  MK_RETURN_IF_ERROR(memory.upload(mine.peer_slots, mine.host_slots.data(), table_bytes));
  return memory.upload(mine.peer_flags, mine.host_flags.data(), table_bytes);
}

void Cluster::drain(uint32_t rank) {
  const RankParts& parts = parts_[rank];
  if (!parts.proxy) return;
  const Result<uint64_t> head = parts.machine->memory().peek(parts.queue_head);
  // Bounded: the proxy trips if nothing completes. After a fault it ends, and writes no more.
  while (head && parts.queue.completed() < *head && load_acquire<Scope::kSys>(abort_) == 0)
    std::this_thread::yield();
  if (load_acquire<Scope::kSys>(abort_) != 0) (void)parts.proxy->stop();
}

void Cluster::retire(PlanSpace& space) {
  const std::lock_guard lock(mutex_);
  // Credits of the last launches may still be on their way to flags that a later plan will get.
  // The network completes them here; and a later plan's epochs start where these end, so that
  // one which only its receiver still has to look at is stale.
  for (uint32_t rank = 0; rank < shape_.world(); ++rank) drain(rank);
  // All ranks at once, so that no plan made meanwhile gets other addresses on one than on another.
  for (uint32_t rank = 0; rank < space.ranks.size(); ++rank) retire_rank(space.ranks[rank], rank);
}

void Cluster::retire_rank(PlanRank& mine, uint32_t rank) {
  RankParts& parts = parts_[rank];
  DeviceMemory& memory = parts.machine->memory();
  LaunchState s;
  if (mine.state != nullptr && memory.download(&s, mine.state, sizeof s)) {
    if (reached(s.epoch - 1, next_first_epoch_)) next_first_epoch_ = s.epoch - 1;
    add_to(parts.totals, s);
  }
  std::erase(parts.states, mine.state);
  for (void* p : {static_cast<void*>(mine.state), static_cast<void*>(mine.peer_slots),
                  static_cast<void*>(mine.peer_flags)})
    if (p != nullptr) memory.release(p);
  mine.flags.reset();
  mine.region.reset();
}

void Cluster::add_to(RankStatistics& sum, const LaunchState& s) const {
  sum.launches += s.launches;
  sum.tiles += s.tiles;
  sum.local_bytes += s.local_bytes;
  sum.network_bytes += s.network_bytes;
  sum.waits += s.waits;
}

Result<RankStatistics> Cluster::statistics(uint32_t rank) {
  const std::lock_guard lock(mutex_);
  RankParts& parts = parts_[rank];
  RankStatistics sum = parts.totals;
  for (const LaunchState* state : parts.states) {
    LaunchState s;
    MK_RETURN_IF_ERROR(parts.machine->memory().download(&s, state, sizeof s));
    add_to(sum, s);
  }
  return sum;
}

PlanSpace::~PlanSpace() { cluster.retire(*this); }

}  // namespace mkernel::detail
