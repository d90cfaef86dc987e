// Two plain TCP sockets on 127.0.0.1, as a careful program without any library would use them:
// blocking calls on whole chunks, no delay, and the kernel's own tuning of its buffers, which a
// size set by hand would switch off and cut to the system's maximum.
#include <arpa/inet.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>

#include "core/watchdog.h"
#include "net_pair.h"
#include "operators/wait_limits.h"

namespace mkernel::app {
namespace {

Status refuse(const std::string& call) {
  return {errno == EAGAIN ? Code::kTimeout : Code::kInternal,
          "tcp: " + call + ": " + std::strerror(errno)};
}

class Socket {
 public:
  Socket() = default;
  explicit Socket(int fd) : fd_(fd) {}
  ~Socket() {
    if (fd_ >= 0) (void)::close(fd_);
  }
  Socket(Socket&& other) noexcept : fd_(std::exchange(other.fd_, -1)) {}
  Socket& operator=(Socket&& other) noexcept {
    std::swap(fd_, other.fd_);
    return *this;
  }
  bool is_open() const { return fd_ >= 0; }
  int fd() const { return fd_; }

  Status tune(uint64_t limit_ns) const {
    const int yes = 1;
    const timeval limit{.tv_sec = static_cast<time_t>(limit_ns / 1'000'000'000),
                        .tv_usec = static_cast<suseconds_t>(limit_ns % 1'000'000'000 / 1000)};
    if (setsockopt(fd_, IPPROTO_TCP, TCP_NODELAY, &yes, sizeof yes) == 0 &&
        setsockopt(fd_, SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof limit) == 0 &&
        setsockopt(fd_, SOL_SOCKET, SO_SNDTIMEO, &limit, sizeof limit) == 0)
      return Status::ok();
    return refuse("setsockopt");
  }
  Status send(const char* data, uint64_t bytes) const {
    while (bytes > 0) {
      const ssize_t n = ::send(fd_, data, bytes, MSG_NOSIGNAL);
      if (n <= 0) return refuse("send");
      data += n;
      bytes -= static_cast<uint64_t>(n);
    }
    return Status::ok();
  }
  Status receive(char* data, uint64_t bytes) const {
    while (bytes > 0) {
      const ssize_t n = ::recv(fd_, data, bytes, MSG_WAITALL);
      if (n == 0) return {Code::kPeerFailed, "tcp: the other end has closed"};
      if (n < 0) return refuse("recv");
      data += n;
      bytes -= static_cast<uint64_t>(n);
    }
    return Status::ok();
  }

 private:
  int fd_ = -1;
};

class TcpPair final : public NetPair {
 public:
  TcpPair() : memory_{std::vector<char>(kNetBytes), std::vector<char>(kNetBytes)} {
    fill_source(memory_[0].data());
  }

  Status connect(uint64_t limit_ns) {
    const Socket listener(::socket(AF_INET, SOCK_STREAM, 0));
    if (!listener.is_open()) return refuse("socket");
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    auto* const any = reinterpret_cast<sockaddr*>(&address);
    socklen_t size = sizeof address;
    if (::bind(listener.fd(), any, size) != 0) return refuse("bind");
    if (::listen(listener.fd(), 1) != 0) return refuse("listen");
    if (::getsockname(listener.fd(), any, &size) != 0) return refuse("getsockname");
    ends_[0] = Socket(::socket(AF_INET, SOCK_STREAM, 0));
    if (!ends_[0].is_open()) return refuse("socket");
    if (::connect(ends_[0].fd(), any, size) != 0) return refuse("connect");
    ends_[1] = Socket(::accept(listener.fd(), nullptr, nullptr));
    if (!ends_[1].is_open()) return refuse("accept");
    for (const Socket& end : ends_) MK_RETURN_IF_ERROR(end.tune(limit_ns));
    return Status::ok();
  }

  Result<double> stream_us(const NetCase& c) override {
    double us = 0;
    const auto send = [&]() -> Status {
      const uint64_t start_ns = Watchdog::now_ns();
      for (int64_t i = 0; i < c.chunks; ++i) MK_RETURN_IF_ERROR(send_chunk(0, c, i));
      char all_there = 0;
      MK_RETURN_IF_ERROR(ends_[0].receive(&all_there, 1));
      us = static_cast<double>(Watchdog::now_ns() - start_ns) * 1e-3;
      return Status::ok();
    };
    const auto receive = [&]() -> Status {
      for (int64_t i = 0; i < c.chunks; ++i) MK_RETURN_IF_ERROR(receive_chunk(1, c, i));
      const char all_there = 1;
      return ends_[1].send(&all_there, 1);
    };
    MK_RETURN_IF_ERROR(threads_.run(send, receive));
    return us;
  }

  Result<std::vector<double>> latencies_us(const NetCase& c) override {
    std::vector<double> us;
    const auto ping = [&]() -> Status {
      for (int64_t i = 0; i < c.chunks; ++i) {
        const uint64_t start_ns = Watchdog::now_ns();
        MK_RETURN_IF_ERROR(send_chunk(0, c, i));
        MK_RETURN_IF_ERROR(receive_chunk(0, c, i));
        us.push_back(static_cast<double>(Watchdog::now_ns() - start_ns) * 0.5e-3);
      }
      return Status::ok();
    };
    const auto pong = [&]() -> Status {
      for (int64_t i = 0; i < c.chunks; ++i) {
        MK_RETURN_IF_ERROR(receive_chunk(1, c, i));
        MK_RETURN_IF_ERROR(send_chunk(1, c, i));
      }
      return Status::ok();
    };
    MK_RETURN_IF_ERROR(threads_.run(ping, pong));
    return us;
  }

  bool take_arrived(const NetCase& c) override {
    return take_equal(memory_[0].data(), memory_[1].data(), c);
  }

 private:
  char* chunk(size_t end, const NetCase& c, int64_t i) {
    return memory_[end].data() + offset_of_chunk(c, static_cast<uint64_t>(i));
  }
  Status send_chunk(size_t end, const NetCase& c, int64_t i) {
    return ends_[end].send(chunk(end, c, i), c.bytes);
  }
  Status receive_chunk(size_t end, const NetCase& c, int64_t i) {
    return ends_[end].receive(chunk(end, c, i), c.bytes);
  }

  std::vector<char> memory_[2];
  Socket ends_[2];
  TwoThreads threads_;  // stop first
};

}  // namespace

Result<std::unique_ptr<NetPair>> create_tcp_pair(const ClusterOptions& options) {
  auto pair = std::make_unique<TcpPair>();
  MK_RETURN_IF_ERROR(pair->connect(detail::wait_limits(options).progress_ns));
  return std::unique_ptr<NetPair>(std::move(pair));
}

}  // namespace mkernel::app
