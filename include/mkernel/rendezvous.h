// How the processes of a cluster, one per rank, find each other: what a user may set about it.
// Rank 0 listens at an address that all ranks know beforehand; the others connect to it.
#pragma once
#include <cstdint>
#include <memory>
#include <optional>
#include <string>

#include <mkernel/status.h>

namespace mkernel {

/// An open port of rank 0, for those who must tell others the address before the ranks join: with
/// port 0 the system chooses a free one. Nobody is served before rank 0 joins.
class Listener {
 public:
  /// address: "host:port" or "[ipv6]:port"; port 0: any free one.
  /// bind:    as RendezvousOptions::bind.
  /// Errors:  invalid_argument if the address is none; unavailable if the port is taken, or the
  ///          host is not one of this machine.
  static Result<std::shared_ptr<Listener>> open(const std::string& address,
                                                const std::string& bind = "");
  ~Listener();
  Listener(const Listener&) = delete;
  Listener& operator=(const Listener&) = delete;

  /// What the others connect to, with the port that was chosen.
  const std::string& address() const { return address_; }
  /// Where it listens, in numbers: "127.0.0.1:20000".
  const std::string& bound_to() const { return bound_to_; }
  /// The socket; -1 when closed. It stays the listener's.
  int fd() const { return fd_; }
  /// Closed for good; also when the group that it served ends.
  void close();

 private:
  Listener(int fd, std::string address, std::string bound_to);
  int fd_;
  std::string address_, bound_to_;
};

struct RendezvousOptions {
  uint32_t rank = 0;   // of this process: 0 <= rank < world
  uint32_t world = 1;  // ranks of the cluster, one process each: 1 to 65536; 1 needs no network

  // Where rank 0 listens: "host:port", "1.2.3.4:port" or "[ipv6]:port", port 1 to 65535. The same
  // on every rank, except that ranks may use different names for the host. Unused with world = 1.
  std::string address = {};

  // Tells this run from others that use the same address, earlier or by mistake: any text of up to
  // 256 bytes, the same on every rank.
  std::string run_id = {};

  // If not empty, only who knows it may join (up to 4096 bytes, the same on every rank). It is
  // never sent. It keeps strangers out; it hides nothing of what the ranks say to each other.
  std::string secret = {};

  // Rank 0 only: the local address to listen at. Empty: the host of `address` and nothing else.
  // "*": all interfaces, for a host whose name means another address on itself than elsewhere.
  std::string bind = {};

  // Rank 0 only: an open port to use instead of opening one at `address`; null: none.
  std::shared_ptr<Listener> listener = {};

  // Limit of the join, in microseconds, 1 to 1e12. Whoever's limit ends first ends the join of all.
  int64_t join_timeout_us = 60'000'000;

  // How long a rank that is not known to be dead may say nothing before it counts as failed, and
  // how often each is asked; microseconds. heartbeat_us from 1000 to silence_limit_us / 2, which is
  // at most 1e12. What rank 0 says holds for all ranks. To be raised only where processes are
  // stopped for longer, as in a debugger.
  int64_t silence_limit_us = 10'000'000;
  int64_t heartbeat_us = 1'000'000;

  // Ranks with the same text are taken to be of the same host. Empty: looked up (boot and network
  // name space). For tests that put several hosts on one machine.
  std::string host_id = {};
};

/// The options of this process as mpirun (Open MPI, MPICH), torchrun or srun started it: rank and
/// world as the launcher says, address and run_id where `given` leaves them empty, a port of the
/// run's own where the address is a host alone, all else as given. Nothing if no launcher started
/// it, or started it alone. Errors: invalid_argument if the launcher's variables contradict each
/// other, or an address is needed and not given.
Result<std::optional<RendezvousOptions>> rendezvous_of_launcher(
    const RendezvousOptions& given = {});

}  // namespace mkernel
