// TCP and Unix sockets that never block: every wait has a deadline, in steady_us(). Signals do not
// end a wait, a broken connection raises none, and no descriptor is handed to child processes.
#pragma once
#include <sys/socket.h>

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include <mkernel/status.h>

#include "rendezvous/owned_fd.h"

namespace mkernel {

struct HostPort {
  std::string host;  // name or numeric address, without brackets
  uint16_t port = 0;
  std::string to_string() const;
};

/// Reads "host:port" or "[ipv6]:port".
/// Errors:  invalid_argument if it is neither, or the port is not a number from 0 to 65535.
Result<HostPort> parse_address(const std::string& address);

/// One address of a host, as the system has it.
struct SocketAddress {
  sockaddr_storage storage{};
  socklen_t length = 0;

  const sockaddr* get() const { return reinterpret_cast<const sockaddr*>(&storage); }
  sockaddr* get() { return reinterpret_cast<sockaddr*>(&storage); }
  std::string to_string() const;  // in numbers: "127.0.0.1:20000"
};

/// The addresses of a host, at least one. May take as long as the system's name service.
/// Errors:  unavailable if there is none.
Result<std::vector<SocketAddress>> resolve(const HostPort& where);

/// Waits for `events` (POLLIN, POLLOUT) of one descriptor; an error or hang-up counts as all of
/// them. Returns whether they came before the deadline.
Result<bool> wait_for(int fd, short events, int64_t deadline_us);

/// A listening socket at the first address of `where` that can be had.
Result<OwnedFd> listen_at(const std::vector<SocketAddress>& where);

/// The address that a socket is bound to.
SocketAddress bound_address(int fd);

/// A connection to the first address that accepts one.
/// Errors:  unavailable if none does before the deadline.
Result<OwnedFd> connect_to(const std::vector<SocketAddress>& where, int64_t deadline_us);

/// The next connection that waits at a listening socket, or none.
/// Errors:  unavailable if the process has no descriptors left.
struct Accepted {
  OwnedFd fd;
  std::string from;  // in numbers
};
Result<Accepted> accept_one(int listening_fd);

/// Wakes a thread that waits in poll().
class WakeUp {
 public:
  static Result<WakeUp> create();
  int fd() const { return fd_.get(); }
  void wake() const;
  void clear() const;  // by the thread that was woken

 private:
  explicit WakeUp(OwnedFd fd) : fd_(std::move(fd)) {}
  OwnedFd fd_;
};

}  // namespace mkernel
