// An applicant's side of joining a group: connect to the hub of rank 0, say who one is, wait until
// all are there.
#pragma once
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include <mkernel/rendezvous.h>
#include <mkernel/status.h>

#include "rendezvous/connection.h"
#include "rendezvous/identity.h"
#include "rendezvous/owned_fd.h"

namespace mkernel {

struct Joined {
  std::unique_ptr<Connection> connection;
  std::vector<Identity> members;  // by rank
  int64_t silence_limit_us;       // rank 0's
};

/// Joins over the network, and tries again until the deadline, because rank 0 may come later.
/// Errors:  timeout if rank 0 or others do not come; invalid_argument, with the hub's reason, if
///          this rank is refused.
Result<Joined> join_hub(const RendezvousOptions& options, const Identity& identity,
                        int64_t deadline_us);

/// The same for rank 0, over a connection to its hub.
Result<Joined> join_own_hub(const RendezvousOptions& options, const Identity& identity,
                            int64_t deadline_us, OwnedFd connected);

}  // namespace mkernel
