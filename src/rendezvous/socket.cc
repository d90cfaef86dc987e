#include "rendezvous/socket.h"

#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/eventfd.h>
#include <sys/un.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <charconv>
#include <cstring>
#include <limits>

#include "rendezvous/text.h"

namespace mkernel {
namespace {

constexpr int kBacklog = 1024;
constexpr int64_t kMaxPollUs = 3600LL * 1'000'000;

void send_at_once(int fd) {
  const int on = 1;  // a failure costs time and nothing else
  (void)setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
}

Status failed(const char* call, const SocketAddress& address) {
  return {Code::kUnavailable,
          std::string(call) + " " + address.to_string() + ": " + text_of_errno(errno)};
}

Result<OwnedFd> listen_at_one(const SocketAddress& address) {
  OwnedFd fd(socket(address.storage.ss_family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0));
  if (!fd) return failed("socket for", address);
  // So that a new run can listen while the system still remembers connections of an old one.
  const int on = 1;
  (void)setsockopt(fd.get(), SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);
  if (bind(fd.get(), address.get(), address.length) != 0) return failed("bind to", address);
  if (listen(fd.get(), kBacklog) != 0) return failed("listen at", address);
  return fd;
}

/// A socket that tries to connect to a local port of the system's choice may meet itself.
bool is_connected_to_itself(int fd) {
  SocketAddress peer;
  peer.length = sizeof peer.storage;
  return getpeername(fd, peer.get(), &peer.length) == 0 &&
         peer.to_string() == bound_address(fd).to_string();
}

Result<OwnedFd> connect_to_one(const SocketAddress& address, int64_t deadline_us) {
  OwnedFd fd(socket(address.storage.ss_family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0));
  if (!fd) return failed("socket for", address);
  send_at_once(fd.get());
  // An interrupted connect goes on by itself, as one that is in progress does.
  if (connect(fd.get(), address.get(), address.length) != 0 && errno != EINPROGRESS &&
      errno != EINTR) {
    return failed("connect to", address);
  }
  Result<bool> ready = wait_for(fd.get(), POLLOUT, deadline_us);
  if (!ready) return ready.status();
  if (!*ready) errno = ETIMEDOUT;
  int error = *ready ? 0 : ETIMEDOUT;
  socklen_t length = sizeof error;
  if (*ready) (void)getsockopt(fd.get(), SOL_SOCKET, SO_ERROR, &error, &length);
  if (error == 0 && is_connected_to_itself(fd.get())) error = ECONNREFUSED;
  if (error == 0) return fd;
  errno = error;
  return failed("connect to", address);
}

}  // namespace

std::string HostPort::to_string() const {
  const bool is_ipv6 = host.find(':') != std::string::npos;
  return (is_ipv6 ? "[" + host + "]" : host) + ":" + std::to_string(port);
}

Result<HostPort> parse_address(const std::string& address) {
  const Status bad(Code::kInvalidArgument, "address \"" + printable(address, 300) +
                                               "\": must be host:port or [ipv6]:port, with a port "
                                               "from 0 to 65535");
  const size_t colon = address.rfind(':');
  if (colon == std::string::npos || colon == 0) return bad;
  HostPort parsed{.host = address.substr(0, colon)};
  if (parsed.host.front() == '[') {
    if (parsed.host.size() < 3 || parsed.host.back() != ']') return bad;
    parsed.host = parsed.host.substr(1, parsed.host.size() - 2);
  } else if (parsed.host.find(':') != std::string::npos) {
    return bad;  // where the port of a bare IPv6 address begins is anybody's guess
  }
  const char* const end = address.data() + address.size();
  const auto [stop, error] = std::from_chars(address.data() + colon + 1, end, parsed.port);
  if (error != std::errc() || stop != end) return bad;
  return parsed;
}

std::string SocketAddress::to_string() const {
  if (storage.ss_family == AF_UNIX) return "a process of this host";
  std::array<char, 64> host{};
  std::array<char, 8> port{};
  if (getnameinfo(get(), length, host.data(), host.size(), port.data(), port.size(),
                  NI_NUMERICHOST | NI_NUMERICSERV) != 0) {
    return "an unknown address";
  }
  const std::string text = host.data();
  return (text.find(':') == std::string::npos ? text : "[" + text + "]") + ":" + port.data();
}

Result<std::vector<SocketAddress>> resolve(const HostPort& where) {
  addrinfo hints{};
  hints.ai_family = AF_UNSPEC;
  hints.ai_socktype = SOCK_STREAM;
  hints.ai_flags = AI_NUMERICSERV;
  addrinfo* found = nullptr;
  const int error =
      getaddrinfo(where.host.c_str(), std::to_string(where.port).c_str(), &hints, &found);
  if (error != 0) {
    return Status(Code::kUnavailable, "host \"" + printable(where.host, 300) +
                                          "\" has no address: " + gai_strerror(error));
  }
  std::vector<SocketAddress> addresses;
  for (const addrinfo* one = found; one != nullptr; one = one->ai_next) {
    SocketAddress& address = addresses.emplace_back();
    address.length = one->ai_addrlen;
    std::memcpy(&address.storage, one->ai_addr, one->ai_addrlen);
  }
  freeaddrinfo(found);
  return addresses;
}

Result<bool> wait_for(int fd, short events, int64_t deadline_us) {
  for (;;) {
    const int64_t left_us = std::clamp<int64_t>(deadline_us - steady_us(), 0, kMaxPollUs);
    pollfd one{.fd = fd, .events = events, .revents = 0};
    const int count = poll(&one, 1, static_cast<int>((left_us + 999) / 1000));
    if (count > 0) return true;
    if (count < 0 && errno != EINTR) {
      return Status(Code::kInternal, std::string("poll: ") + text_of_errno(errno));
    }
    if (steady_us() >= deadline_us) return false;
  }
}

Result<OwnedFd> listen_at(const std::vector<SocketAddress>& where) {
  Status last(Code::kUnavailable, "no address to listen at");
  for (const SocketAddress& address : where) {
    Result<OwnedFd> fd = listen_at_one(address);
    if (fd) return fd;
    last = fd.status();
  }
  return last;
}

SocketAddress bound_address(int fd) {
  SocketAddress address;
  address.length = sizeof address.storage;
  if (getsockname(fd, address.get(), &address.length) != 0) address.length = 0;
  return address;
}

Result<OwnedFd> connect_to(const std::vector<SocketAddress>& where, int64_t deadline_us) {
  Status last(Code::kUnavailable, "no address to connect to");
  for (const SocketAddress& address : where) {
    Result<OwnedFd> fd = connect_to_one(address, deadline_us);
    if (fd) return fd;
    last = fd.status();
  }
  return last;
}

Result<Accepted> accept_one(int listening_fd) {
  for (;;) {
    SocketAddress from;
    from.length = sizeof from.storage;
    OwnedFd fd(accept4(listening_fd, from.get(), &from.length, SOCK_NONBLOCK | SOCK_CLOEXEC));
    if (fd) {
      if (from.storage.ss_family != AF_UNIX) send_at_once(fd.get());
      return Accepted{std::move(fd), from.to_string()};
    }
    // Whoever gave up while waiting here, or signals, are no reason to stop.
    if (errno == EINTR || errno == ECONNABORTED || errno == EPROTO) continue;
    if (errno == EAGAIN || errno == EWOULDBLOCK) return Accepted{};
    return Status(Code::kUnavailable, std::string("accept: ") + text_of_errno(errno));
  }
}

Result<WakeUp> WakeUp::create() {
  OwnedFd fd(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
  if (!fd) return Status(Code::kUnavailable, std::string("eventfd: ") + text_of_errno(errno));
  return WakeUp(std::move(fd));
}

void WakeUp::wake() const {
  const uint64_t one = 1;
  (void)!write(fd_.get(), &one, sizeof one);  // it fails only when it is awake already
}

void WakeUp::clear() const {
  uint64_t count = 0;
  (void)!read(fd_.get(), &count, sizeof count);
}

}  // namespace mkernel
