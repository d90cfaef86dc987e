#include "operators/cluster.h"

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <thread>

#include "network/transports.h"
#include "operators/layout.h"

namespace mkernel::detail {
namespace {

/// Commands that a rank's kernels can be ahead of its network: a few launches' worth of chunks.
constexpr uint32_t kLog2QueueCapacity = 10;

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

Status status_of(const FaultRecord& f, const WaitLimits& limits) {
  return Status(Code::kTimeout,
                "rank " + std::to_string(f.rank) + " waited for " + place_name(f.place) + " " +
                    std::to_string(f.chunk) + ") of rank " + std::to_string(f.peer) +
                    ": expected epoch " + std::to_string(f.expected) + ", seen " +
                    std::to_string(f.seen) + ", after " + describe(f.limit, limits));
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

bool Cluster::are_peers(uint32_t a, uint32_t b) const {
  return a != b && (shape_.same_node(a, b) || shape_.gpu_of(a) == shape_.gpu_of(b));
}

Result<std::shared_ptr<Cluster>> Cluster::create(const ClusterOptions& options) {
  MK_RETURN_IF_ERROR(check_options(options));
  const auto ranks = static_cast<uint32_t>(options.nodes * options.gpus);
  std::shared_ptr<Cluster> cluster(new Cluster(options, 0, ranks));
  if (options.transport == "auto") cluster->options_.transport = "loopback";
  const auto count = static_cast<int>(ranks);
  MK_RETURN_IF_ERROR(cluster->set_up(options.device == DeviceKind::kHost
                                         ? create_host_machines(count)
                                         : create_cuda_machines(count)));
  return cluster;
}

Result<std::shared_ptr<Cluster>> Cluster::join(const ClusterOptions& options,
                                               const RendezvousOptions& rendezvous) {
  auto processes = Processes::join(rendezvous);
  if (!processes) return processes.status();
  ClusterOptions chosen = options;
  MK_RETURN_IF_ERROR(choose_layout(chosen, **processes));
  std::shared_ptr<Cluster> cluster(new Cluster(chosen, rendezvous.rank, 1));
  cluster->processes_ = std::move(*processes);
  const auto index = static_cast<int>(cluster->processes_->index_on_host());
  MK_RETURN_IF_ERROR(cluster->set_up(chosen.device == DeviceKind::kHost
                                         ? create_host_machines(1)
                                         : create_cuda_machine_of_process(index)));
  return cluster;
}

Status Cluster::set_up(Result<Machines> machines) {
  next_first_epoch_ = options_.first_epoch;
  MK_RETURN_IF_ERROR(agree("device", machines.status()));
  MK_RETURN_IF_ERROR(agree("memory", add_ranks(std::move(*machines))));
  if (processes_) {
    MK_RETURN_IF_ERROR(check_devices());
    MK_RETURN_IF_ERROR(map_heaps());
    const auto cause = [this] {
      return find_fault().value_or(Status(Code::kPeerFailed, "failed"));
    };
    MK_RETURN_IF_ERROR(agree("watch", processes_->watch(abort_, cause)));
  }
  return shape_.nodes > 1 ? add_network() : Status::ok();
}

Status Cluster::add_ranks(Machines machines) {
  parts_.resize(num_local_);
  mapped_.resize(shape_.world());
  views_.resize(shape_.world(), nullptr);
  for (uint32_t i = 0; i < num_local_; ++i) {
    parts_[i].machine = std::move(machines[i]);
    MK_RETURN_IF_ERROR(add_rank(first_rank_ + i));
    views_[first_rank_ + i] = parts_[i].heap.get();
  }
  return Status::ok();
}

Cluster::~Cluster() { close(); }

void Cluster::close() {
  // Every write must have been placed before the heap that it goes to goes, and its receiver's
  // network may have to help. Who cannot be waited for has left or failed, and writes no more.
  for (uint32_t i = 0; i < parts_.size(); ++i) drain(first_rank_ + i);
  if (processes_) {
    processes_->stop_watching();
    (void)processes_->agree("close", Status::ok());
  }
  for (RankParts& parts : parts_)
    if (parts.proxy) (void)parts.proxy->stop();
  for (RankParts& parts : parts_) {
    parts.endpoint = nullptr;  // for plans that not all ranks asked for: they go after this
    parts.proxy.reset();
  }
}

/// Two kernels of different processes on one GPU take turns, and while one waits for the other
/// neither would end.
Status Cluster::check_devices() {
  const auto devices = gather("devices", {parts_[0].machine->device_id()});
  if (!devices) return devices.status();
  for (uint32_t r = 0; r < shape_.world(); ++r)
    for (uint32_t q = 0; q < r; ++q)
      if (!(*devices)[r].empty() && (*devices)[r] == (*devices)[q])
        return Status(Code::kUnavailable, processes_->name_of(q) + " and " +
                                              processes_->name_of(r) + " have the same " +
                                              (*devices)[r] + ": processes need a GPU each");
  return Status::ok();
}

Status Cluster::map_heaps() {
  const RankParts& own = parts_[0];
  DeviceMemory& memory = own.machine->memory();
  const Result<int> flags = memory.export_shared(own.heap->flag_region());
  MK_RETURN_IF_ERROR(agree("export of flags", flags.status()));
  const OwnedFd descriptor(*flags);
  auto theirs = processes_->swap_descriptors(descriptor.get());
  if (!theirs) return theirs.status();
  Status mapped;
  for (uint32_t rank = 0; rank < shape_.world() && mapped; ++rank) {
    if (!are_peers(rank, first_rank_) || !(*theirs)[rank]) continue;
    auto heap = MappedHeap::create(memory, (*theirs)[rank].get());
    mapped = heap.status();
    if (heap) mapped_[rank] = std::move(heap.value());
    views_[rank] = mapped_[rank].get();
  }
  return agree("mapping of flags", mapped);
}

Result<std::vector<std::string>> Cluster::gather(const std::string& what,
                                                 std::vector<std::string> mine) {
  if (!processes_) return mine;
  return processes_->all_gather(what, std::move(mine[0]));
}

Status Cluster::agree(const std::string& what, const Status& mine) {
  return processes_ ? processes_->agree(what, mine) : mine;
}

Status Cluster::add_rank(uint32_t rank) {
  RankParts& parts = local(rank);
  DeviceMemory& memory = parts.machine->memory();
  auto heap = SymmetricHeap::create(memory, rank, options_.heap_bytes_limit,
                                    processes_ ? HeapReach::kHost : HeapReach::kProcess);
  if (!heap) return heap.status();
  parts.heap = std::move(heap.value());
  auto claim = allocate_zeroed(memory, sizeof(uint32_t));
  if (!claim) return claim.status();
  parts.fault_claim = static_cast<uint32_t*>(*claim);
  auto fault = memory.allocate_pinned(sizeof(FaultRecord));
  if (!fault) return fault.status();
  parts.fault = static_cast<FaultRecord*>(*fault);
  if (rank == first_rank_) {
    auto abort = memory.allocate_pinned(sizeof(uint32_t));
    if (!abort) return abort.status();
    abort_ = static_cast<uint32_t*>(*abort);
  }
  return shape_.nodes > 1 ? add_queue(rank) : Status::ok();
}

Status Cluster::add_queue(uint32_t rank) {
  RankParts& parts = local(rank);
  DeviceMemory& memory = parts.machine->memory();
  auto slots = memory.allocate_pinned(sizeof(CommandSlot) << kLog2QueueCapacity);
  if (!slots) return slots.status();
  auto tail = memory.allocate_pinned(sizeof(uint64_t));
  if (!tail) return tail.status();
  auto producers = allocate_zeroed(memory, sizeof(ProducerWords));
  if (!producers) return producers.status();
  parts.producers = static_cast<ProducerWords*>(*producers);
  parts.queue = CommandQueue(static_cast<CommandSlot*>(*slots), parts.producers,
                             static_cast<uint64_t*>(*tail), kLog2QueueCapacity);
  return Status::ok();
}

Status Cluster::add_network() {
  std::vector<SymmetricHeap*> heaps;
  for (RankParts& parts : parts_) heaps.push_back(parts.heap.get());
  auto endpoints = create_endpoints(options_.transport,
                                    {options_, first_rank_, heaps, views_, limits_.progress_ns});
  MK_RETURN_IF_ERROR(agree("network", endpoints.status()));
  MK_RETURN_IF_ERROR(connect(*endpoints));
  return agree("proxy", start_proxies(std::move(*endpoints)));
}

Status Cluster::connect(std::span<const std::unique_ptr<Endpoint>> endpoints) {
  std::vector<std::string> mine;
  for (const auto& endpoint : endpoints) mine.push_back(endpoint->address());
  const auto all = gather("addresses on the network", std::move(mine));
  if (!all) return all.status();
  Status connected;
  for (uint32_t i = 0; i < num_local_ && connected; ++i) {
    std::vector<std::string> of_peers(shape_.world());
    for (uint32_t rank = 0; rank < shape_.world(); ++rank)
      if (are_peers(rank, first_rank_ + i) && !shape_.same_node(rank, first_rank_ + i))
        of_peers[rank] = (*all)[rank];
    connected = endpoints[i]->connect(of_peers);
  }
  return agree("connecting the network", connected);
}

Status Cluster::start_proxies(std::vector<std::unique_ptr<Endpoint>> endpoints) {
  for (uint32_t i = 0; i < num_local_; ++i) {
    RankParts& parts = parts_[i];
    parts.endpoint = endpoints[i].get();
    auto proxy = Proxy::start({.rank = first_rank_ + i,
                               .num_ranks = shape_.world(),
                               .queue = parts.queue,
                               .endpoint = std::move(endpoints[i]),
                               .heap = parts.heap.get(),
                               .abort = abort_,
                               .limit_ns = limits_.progress_ns});
    if (!proxy) return proxy.status();
    parts.proxy = std::move(proxy.value());
  }
  return Status::ok();
}

Watchdog Cluster::watchdog(uint32_t rank) const {
  const RankParts& parts = local(rank);
  return {abort_, parts.fault_claim, parts.fault, limits_, rank};
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
  if (processes_)
    if (std::optional<Status> fault = processes_->remote_fault()) return fault;
  for (const RankParts& parts : parts_)
    if (load_acquire<Scope::kSys>(&parts.fault->tripped) != 0)
      return status_of(*parts.fault, limits_);
  return std::nullopt;  // its report is still being written
}

}  // namespace mkernel::detail
