// The plans of a cluster: their work space, made by all ranks in the same order.
#include <algorithm>
#include <cstdlib>
#include <thread>

#include "operators/cluster.h"

namespace mkernel::detail {
namespace {

ProxyTotals totals_of(const ProxyStatistics& s) {
  return {.commands = s.commands,
          .bytes = s.bytes,
          .batches = s.batches,
          .partial_batches = s.partial_batches,
          .room_waits = s.room_waits,
          .retries = s.retries,
          .arrivals = s.arrivals,
          .stale_arrivals = s.stale_arrivals};
}

}  // namespace

Result<std::shared_ptr<PlanSpace>> Cluster::join_plan(uint32_t rank, const std::string& signature,
                                                      uint64_t bytes, uint32_t flags) {
  MK_RETURN_IF_ERROR(status());
  std::shared_ptr<PlanSpace> space;  // outlives the lock: retiring one takes it
  const std::lock_guard lock(mutex_);
  const uint64_t number = local(rank).num_plans;
  if (number == plans_.size()) {
    space = std::make_shared<PlanSpace>(*this, signature);
    if (const Status filled = fill_plan(*space, number, bytes, flags); !filled) {
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
  ++local(rank).num_plans;
  if (++space->joined == num_local_) plans_[number].reset();
  return space;
}

Status Cluster::fill_plan(PlanSpace& space, uint64_t number, uint64_t bytes, uint32_t flags) {
  const std::string what = "plan " + std::to_string(number);
  MK_RETURN_IF_ERROR(start_plan(space, what));
  space.ranks.resize(num_local_);
  Status filled;
  for (uint32_t i = 0; i < num_local_ && filled; ++i)
    filled = fill_plan_rank(space, first_rank_ + i, bytes, flags);
  MK_RETURN_IF_ERROR(agree(what, filled));
  MK_RETURN_IF_ERROR(check_addresses(space, what));
  if (processes_) MK_RETURN_IF_ERROR(agree(what, map_regions(space)));
  if (shape_.nodes > 1) MK_RETURN_IF_ERROR(share_regions(space, what));
  Status linked;
  for (uint32_t i = 0; i < num_local_ && linked; ++i)
    linked = link_plan_rank(space, first_rank_ + i);
  return agree(what, linked);
}

/// Ranks agree on what they make, on the first epoch, and on how many regions there were.
Status Cluster::start_plan(PlanSpace& space, const std::string& what) {
  space.first_epoch = next_first_epoch_;
  if (!processes_) return Status::ok();
  const auto signatures = processes_->all_gather(what, space.signature);
  if (!signatures) return signatures.status();
  for (uint32_t r = 0; r < shape_.world(); ++r)
    if ((*signatures)[r] != space.signature)
      return Status(Code::kInvalidArgument,
                    "rank " + std::to_string(first_rank_) + " makes " + what + " for " +
                        space.signature + ", " + processes_->name_of(r) + " makes it for " +
                        (*signatures)[r] +
                        ": all ranks must make the same plans in the same order");
  const auto epochs = processes_->all_gather(what, std::to_string(next_first_epoch_));
  if (!epochs) return epochs.status();
  const auto regions = processes_->all_gather(what, std::to_string(most_regions()));
  if (!regions) return regions.status();
  for (uint32_t r = 0; r < shape_.world(); ++r) {
    const auto epoch = static_cast<uint32_t>(std::strtoul((*epochs)[r].c_str(), nullptr, 10));
    if (reached(epoch, space.first_epoch)) space.first_epoch = epoch;
    parts_[0].heap->skip_regions_to(
        static_cast<uint32_t>(std::strtoul((*regions)[r].c_str(), nullptr, 10)));
  }
  return Status::ok();
}

uint32_t Cluster::most_regions() const {
  uint32_t most = 0;
  for (const RankParts& parts : parts_) most = std::max(most, parts.heap->num_regions());
  return most;
}

Status Cluster::fill_plan_rank(PlanSpace& space, uint32_t rank, uint64_t bytes, uint32_t flags) {
  RankParts& parts = local(rank);
  PlanRank& mine = space.ranks[rank - first_rank_];
  auto region = parts.heap->allocate(bytes);
  if (!region) return region.status();
  mine.region = std::move(region.value());
  space.address = mine.region->address;
  auto range = parts.heap->allocate_flags(flags, space.first_epoch);
  if (!range) return range.status();
  mine.flags = std::move(range.value());
  auto state = parts.machine->memory().allocate(sizeof(LaunchState));
  if (!state) return state.status();
  mine.state = static_cast<LaunchState*>(*state);
  LaunchState fresh;
  fresh.epoch = space.first_epoch + 1;
  MK_RETURN_IF_ERROR(parts.machine->memory().upload(mine.state, &fresh, sizeof fresh));
  parts.states.push_back(mine.state);
  return Status::ok();
}

/// Peers and the network name a rank's memory by its address on any other rank.
Status Cluster::check_addresses(const PlanSpace& space, const std::string& what) {
  std::vector<std::string> mine;
  for (const PlanRank& rank : space.ranks)
    mine.push_back(std::to_string(rank.region->address) + ", flags from " +
                   std::to_string(rank.flags->first));
  const auto all = gather(what, std::move(mine));
  if (!all) return all.status();
  for (uint32_t r = 1; r < shape_.world(); ++r)
    if ((*all)[r] != (*all)[0])
      return Status(Code::kInternal, what + ": rank " + std::to_string(r) + " has region " +
                                         (*all)[r] + ", rank 0 " + (*all)[0] +
                                         ": the ranks did not make and destroy the same plans in "
                                         "the same order");
  return Status::ok();
}

/// Maps the plan's regions of this host's other processes.
Status Cluster::map_regions(PlanSpace& space) {
  const HeapRegion& own = *space.ranks[0].region;
  const Result<int> exported = parts_[0].machine->memory().export_shared(own.data);
  const OwnedFd descriptor(exported ? *exported : -1);
  auto theirs = processes_->swap_descriptors(descriptor.get());
  if (!exported) return exported.status();
  if (!theirs) return theirs.status();
  for (uint32_t rank = 0; rank < shape_.world(); ++rank) {
    if (!mapped_[rank]) continue;
    const auto mapped = mapped_[rank]->map(own.address, own.bytes, (*theirs)[rank].get());
    if (!mapped) return mapped.status();
  }
  return Status::ok();
}

/// Makes the plan's regions known to the networks of all ranks that write to them.
Status Cluster::share_regions(PlanSpace& space, const std::string& what) {
  std::vector<std::string> keys;
  Status exported;
  for (uint32_t i = 0; i < num_local_ && exported; ++i) {
    auto key = parts_[i].endpoint->export_region(*space.ranks[i].region);
    exported = key.status();
    keys.push_back(key ? std::move(key.value()) : std::string());
  }
  MK_RETURN_IF_ERROR(agree(what, exported));
  const auto all = gather(what, std::move(keys));
  if (!all) return all.status();
  Status imported;
  for (uint32_t i = 0; i < num_local_; ++i)
    for (uint32_t step = 1; step < shape_.nodes && imported; ++step) {
      const uint32_t peer = shape_.rail_peer(first_rank_ + i, step);
      imported = parts_[i].endpoint->import_region(peer, space.address,
                                                   space.ranks[i].region->bytes, (*all)[peer]);
    }
  return agree(what, imported);
}

Status Cluster::link_plan_rank(PlanSpace& space, uint32_t rank) {
  DeviceMemory& memory = local(rank).machine->memory();
  PlanRank& mine = space.ranks[rank - first_rank_];
  for (uint32_t gpu = 0; gpu < shape_.gpus; ++gpu) {
    const HeapView& peer = *views_[shape_.rank(shape_.node_of(rank), gpu)];
    mine.host_slots.push_back(peer.resolve(space.address, mine.region->bytes));
    mine.host_flags.push_back(peer.flag_region());
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
  const RankParts& parts = local(rank);
  if (!parts.proxy) return;
  const Result<uint64_t> head = parts.machine->memory().peek(&parts.producers->head);
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
  for (uint32_t i = 0; i < num_local_; ++i) drain(first_rank_ + i);
  for (RankParts& parts : parts_)
    if (parts.endpoint != nullptr && space.address != 0)
      parts.endpoint->forget_region(space.address);
  for (const auto& heap : mapped_)
    if (heap && space.address != 0) heap->unmap(space.address);
  // All ranks at once, so that no plan made meanwhile gets other addresses on one than on another.
  for (uint32_t i = 0; i < space.ranks.size(); ++i) retire_rank(space.ranks[i], first_rank_ + i);
}

void Cluster::retire_rank(PlanRank& mine, uint32_t rank) {
  RankParts& parts = local(rank);
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
  RankParts& parts = local(rank);
  RankStatistics sum = parts.totals;
  if (parts.proxy) sum.proxy = totals_of(parts.proxy->statistics());
  for (const LaunchState* state : parts.states) {
    LaunchState s;
    MK_RETURN_IF_ERROR(parts.machine->memory().download(&s, state, sizeof s));
    add_to(sum, s);
  }
  return sum;
}

PlanSpace::~PlanSpace() { cluster.retire(*this); }

const PlanRank& PlanSpace::of(uint32_t rank) const { return ranks[rank - cluster.first_rank()]; }

}  // namespace mkernel::detail
