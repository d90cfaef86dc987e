// The other processes of a cluster, one rank in each: what a rank tells them while things are set
// up, and when something has failed. Kernels never come here.
#pragma once
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include <mkernel/rendezvous.h>
#include <mkernel/status.h>

#include "rendezvous/fd_mesh.h"
#include "rendezvous/process_group.h"

namespace mkernel::detail {

/// Collective calls are made by all ranks in the same order; each is limited by the time that the
/// rendezvous had, and ends at once if a rank fails.
class Processes {
 public:
  static Result<std::unique_ptr<Processes>> join(const RendezvousOptions& options);
  ~Processes();
  Processes(const Processes&) = delete;
  Processes& operator=(const Processes&) = delete;

  uint32_t rank() const { return group_->rank(); }
  uint32_t world() const { return group_->world(); }
  std::string name_of(uint32_t rank) const { return group_->name_of(rank); }
  bool same_host(uint32_t a, uint32_t b) const { return group_->host_of(a) == group_->host_of(b); }
  /// Ranks of this rank's host that come before it.
  uint32_t index_on_host() const;

  /// What every rank gives, by rank. Collective.
  Result<std::vector<std::string>> all_gather(const std::string& what, std::string mine);
  /// ok if `mine` is ok on every rank, else what failed, and on which rank. Collective.
  Status agree(const std::string& what, const Status& mine);
  /// Hands a descriptor to every rank of this host and takes theirs, by rank; none from other
  /// hosts. Collective over the host.
  Result<std::vector<OwnedFd>> swap_descriptors(int mine);

  /// From now on a rank's fault sets *abort here, and *abort set here is told to all with what
  /// `find_fault` says.
  Status watch(uint32_t* abort, std::function<Status()> find_fault);
  /// Ends that.
  void stop_watching();
  /// What another rank reported; none while all is well.
  std::optional<Status> remote_fault() const;

 private:
  Processes(std::unique_ptr<ProcessGroup> group, int64_t limit_us)
      : group_(std::move(group)), limit_us_(limit_us) {}
  Status open_mesh();
  void take_fault(const Status& fault);
  void relay(const std::stop_token& stop, const std::function<Status()>& find_fault);

  const std::unique_ptr<ProcessGroup> group_;
  const int64_t limit_us_;
  std::unique_ptr<FdMesh> mesh_;

  mutable std::mutex mutex_;  // guards these two
  uint32_t* abort_ = nullptr;
  std::optional<Status> remote_fault_;

  std::jthread relay_;
};

}  // namespace mkernel::detail
