// The listening port of rank 0.
#include <unistd.h>

#include <utility>

#include <mkernel/rendezvous.h>

#include "rendezvous/owned_fd.h"
#include "rendezvous/socket.h"

namespace mkernel {

Result<std::shared_ptr<Listener>> Listener::open(const std::string& address,
                                                 const std::string& bind) {
  Result<HostPort> where = parse_address(address);
  if (!where) return where.status();
  HostPort local = *where;
  if (!bind.empty()) local.host = bind;
  // All interfaces: by IPv6 for IPv4 too, if the system has it.
  std::vector<SocketAddress> addresses;
  for (const std::string& host : bind == "*" ? std::vector<std::string>{"::", "0.0.0.0"}
                                             : std::vector<std::string>{local.host}) {
    Result<std::vector<SocketAddress>> found = resolve({host, local.port});
    if (!found) {
      if (bind == "*") continue;
      return found.status();
    }
    addresses.insert(addresses.end(), found->begin(), found->end());
  }
  Result<OwnedFd> fd = listen_at(addresses);
  if (!fd) {
    return Status(fd.status().code(),
                  "rank 0 cannot listen at " + local.to_string() + ": " + fd.status().message());
  }
  const SocketAddress bound = bound_address(fd->get());
  Result<HostPort> bound_to = parse_address(bound.to_string());
  if (!bound_to) return bound_to.status();
  where->port = bound_to->port;
  return std::shared_ptr<Listener>(
      new Listener(fd->release(), where->to_string(), bound.to_string()));
}

Listener::Listener(int fd, std::string address, std::string bound_to)
    : fd_(fd), address_(std::move(address)), bound_to_(std::move(bound_to)) {}

Listener::~Listener() { close(); }

void Listener::close() { OwnedFd(std::exchange(fd_, -1)).reset(); }

}  // namespace mkernel
