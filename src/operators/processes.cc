#include "operators/processes.h"

#include <atomic>
#include <charconv>
#include <chrono>
#include <map>

#include "core/sync.h"

namespace mkernel::detail {
namespace {

/// Each cluster that a rank makes gets its own name in a run, so that a late message of an earlier
/// one is refused: all ranks make their clusters in the same order.
std::string name_of_run(const RendezvousOptions& options) {
  static std::mutex mutex;
  static std::map<std::pair<std::string, uint32_t>, uint64_t> clusters;
  const std::lock_guard lock(mutex);
  return options.run_id + "/" + std::to_string(clusters[{options.run_id, options.rank}]++);
}

std::string encode(const Status& status) {
  if (status) return {};
  return std::to_string(static_cast<int>(status.code())) + " " + status.message();
}

Status decode(const std::string& text) {
  if (text.empty()) return Status::ok();
  int code = static_cast<int>(Code::kInternal);
  const auto end = std::from_chars(text.data(), text.data() + text.size(), code).ptr;
  if (code <= static_cast<int>(Code::kOk) || code > static_cast<int>(Code::kInternal))
    code = static_cast<int>(Code::kInternal);
  const auto skip = static_cast<size_t>(end - text.data()) + 1;
  return {static_cast<Code>(code), skip < text.size() ? text.substr(skip) : ""};
}

}  // namespace

Result<std::unique_ptr<Processes>> Processes::join(const RendezvousOptions& options) {
  RendezvousOptions named = options;
  named.run_id = name_of_run(options);
  auto group = ProcessGroup::join(named);
  if (!group) return group.status();
  std::unique_ptr<Processes> processes(
      new Processes(std::move(group.value()), options.join_timeout_us));
  MK_RETURN_IF_ERROR(processes->open_mesh());
  return processes;
}

Processes::~Processes() {
  stop_watching();
  group_->leave();
}

Status Processes::open_mesh() {
  auto mesh = FdMesh::connect(*group_, group_->ranks_of_this_host(), limit_us_);
  if (!mesh) return mesh.status();
  mesh_ = std::move(mesh.value());
  return Status::ok();
}

uint32_t Processes::index_on_host() const {
  uint32_t index = 0;
  for (uint32_t r = 0; r < rank(); ++r) index += same_host(r, rank()) ? 1 : 0;
  return index;
}

Result<std::vector<std::string>> Processes::all_gather(const std::string& what, std::string mine) {
  return group_->all_gather(what, std::move(mine), limit_us_);
}

Status Processes::agree(const std::string& what, const Status& mine) {
  const auto all = all_gather(what, encode(mine));
  if (!mine) return mine;  // this rank's own failure comes before what the others made of it
  if (!all) return all.status();
  for (uint32_t r = 0; r < all->size(); ++r) {
    const Status theirs = decode((*all)[r]);
    if (!theirs) return {theirs.code(), name_of(r) + ": " + what + ": " + theirs.message()};
  }
  return Status::ok();
}

Result<std::vector<OwnedFd>> Processes::swap_descriptors(int mine) {
  auto theirs = mesh_->exchange(mine, limit_us_);
  if (!theirs) {
    group_->report_fault(theirs.status());  // the mesh is of no use any more
    return theirs.status();
  }
  std::vector<OwnedFd> of_rank(world());
  for (size_t i = 0; i < theirs->size(); ++i) of_rank[mesh_->peers()[i]] = std::move((*theirs)[i]);
  return of_rank;
}

Status Processes::watch(uint32_t* abort, std::function<Status()> find_fault) {
  {
    const std::lock_guard lock(mutex_);
    abort_ = abort;
  }
  group_->on_fault([this](const Status& fault) { take_fault(fault); });
  try {
    relay_ = std::jthread([this, find_fault = std::move(find_fault)](const std::stop_token& stop) {
      relay(stop, find_fault);
    });
  } catch (const std::system_error& e) {
    return {Code::kInternal, std::string("no thread to watch for faults: ") + e.what()};
  }
  return Status::ok();
}

void Processes::stop_watching() {
  group_->on_fault({});
  relay_.request_stop();
  if (relay_.joinable()) relay_.join();
  const std::lock_guard lock(mutex_);
  abort_ = nullptr;
}

void Processes::take_fault(const Status& fault) {
  const std::lock_guard lock(mutex_);
  if (!remote_fault_) remote_fault_ = fault;
  if (abort_ != nullptr) store_release<Scope::kSys>(abort_, 1u);
}

void Processes::relay(const std::stop_token& stop, const std::function<Status()>& find_fault) {
  // A kernel can only set a word, so somebody has to look at it.
  constexpr auto kPeriod = std::chrono::milliseconds(5);
  for (; !stop.stop_requested(); std::this_thread::sleep_for(kPeriod)) {
    if (load_acquire<Scope::kSys>(abort_) == 0) continue;
    if (!remote_fault()) group_->report_fault(find_fault());
    return;
  }
}

std::optional<Status> Processes::remote_fault() const {
  const std::lock_guard lock(mutex_);
  return remote_fault_;
}

}  // namespace mkernel::detail
