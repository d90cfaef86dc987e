// File descriptors between the processes of one host, which is how they come to share memory: every
// pair of ranks has a Unix socket. Which ranks those are, and the names of the sockets, go through
// the group; so names never collide, and nobody waits for a rank that is not there.
#pragma once
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include <mkernel/status.h>

#include "rendezvous/owned_fd.h"
#include "rendezvous/process_group.h"

namespace mkernel {

/// Not thread safe. The group must outlive it.
class FdMesh {
 public:
  /// Collective over the whole group. `peers`: ranks of this rank's host, itself included,
  /// ascending, and the same list on each of them.
  /// Errors:  the fault of the group; invalid_argument if peers are not as said above, or other
  ///          ranks say otherwise; timeout if ranks do not come, and which; unavailable if a rank
  ///          cannot open a socket. Peers may not fail with it, so they must be told of it
  ///          (ProcessGroup::report_fault).
  static Result<std::unique_ptr<FdMesh>> connect(ProcessGroup& group, std::vector<uint32_t> peers,
                                                 int64_t timeout_us);

  const std::vector<uint32_t>& peers() const { return peers_; }

  /// Collective over the peers: `mine[i]` goes to peers()[i], and what it sends comes back in place
  /// i; -1, or an empty one: none. What is in one's own place is ignored, and comes back empty. The
  /// caller keeps its own descriptors; the others' are duplicates, and close on exec.
  /// Errors:  the fault of the group; timeout if peers do not come, and which; peer_failed if one
  ///          is gone; invalid_argument if a descriptor is not open. The mesh is of no use
  ///          afterwards, and the others must be told, as above.
  Result<std::vector<OwnedFd>> exchange(std::span<const int> mine, int64_t timeout_us);
  /// The same descriptor to all.
  Result<std::vector<OwnedFd>> exchange(int mine, int64_t timeout_us);

 private:
  FdMesh(ProcessGroup& group, std::vector<uint32_t> peers)
      : group_(group), peers_(std::move(peers)), sockets_(peers_.size()) {}
  Status connect_all(const OwnedFd& listening, const std::vector<std::string>& names,
                     int64_t deadline_us);
  Status connect_to_peer(size_t i, const std::string& name, int64_t deadline_us);
  Status accept_peers(const OwnedFd& listening, size_t num_wanted, int64_t deadline_us);
  Status serve(size_t i, int mine, OwnedFd* theirs, short* to_do);
  Result<bool> send_to(size_t i, int fd);
  Result<bool> receive_from(size_t i, OwnedFd* fd);
  Status check_time(int64_t deadline_us, const std::vector<uint32_t>& missing) const;
  Status error(Code code, const std::string& message) const;

  ProcessGroup& group_;
  const std::vector<uint32_t> peers_;
  std::vector<OwnedFd> sockets_;  // by place in peers_; none to oneself
  uint32_t round_ = 0;            // exchanges so far
  int64_t timeout_us_ = 0;        // of the call under way
};

}  // namespace mkernel
