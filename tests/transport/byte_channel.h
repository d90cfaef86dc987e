// A stream socket between two processes of a test, for what the caller of a transport has to carry:
// addresses and keys. A peer that is gone shows as an empty message.
#pragma once
#include <poll.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <csignal>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <functional>
#include <string>
#include <utility>

namespace mkernel::test {

class ByteChannel {
 public:
  explicit ByteChannel(int fd) : fd_(fd) {}
  ByteChannel(ByteChannel&& other) noexcept : fd_(std::exchange(other.fd_, -1)) {}
  ByteChannel& operator=(ByteChannel&&) = delete;
  ~ByteChannel() {
    if (fd_ >= 0) (void)close(fd_);
  }

  void send(const std::string& message) const {
    const auto length = static_cast<uint32_t>(message.size());
    std::string bytes(reinterpret_cast<const char*>(&length), sizeof length);
    bytes += message;
    for (size_t sent = 0; sent < bytes.size();) {
      const ssize_t n = ::send(fd_, bytes.data() + sent, bytes.size() - sent, MSG_NOSIGNAL);
      if (n <= 0) return;
      sent += static_cast<size_t>(n);
    }
  }
  std::string receive() const {
    uint32_t length = 0;
    if (!receive_all(reinterpret_cast<char*>(&length), sizeof length)) return {};
    std::string message(length, '\0');
    return receive_all(message.data(), length) ? message : std::string();
  }
  /// Whether receive() would return at once.
  bool is_readable() const {
    pollfd wanted{.fd = fd_, .events = POLLIN, .revents = 0};
    return ::poll(&wanted, 1, 0) == 1;
  }

 private:
  bool receive_all(char* data, size_t bytes) const {
    for (size_t got = 0; got < bytes;) {
      const ssize_t n = recv(fd_, data + got, bytes - got, 0);
      if (n <= 0) return false;
      got += static_cast<size_t>(n);
    }
    return true;
  }

  int fd_;
};

/// A function run by a process of its own. To be made while this one has a single thread.
class ChildProcess {
 public:
  /// `body` returns the exit status.
  explicit ChildProcess(const std::function<int(ByteChannel&)>& body)
      : ChildProcess(body, make_sockets()) {}
  ChildProcess(const ChildProcess&) = delete;
  ChildProcess& operator=(const ChildProcess&) = delete;
  ~ChildProcess() {
    kill();
    (void)wait();
  }

  ByteChannel& channel() { return channel_; }
  void kill() const {
    if (pid_ > 0) (void)::kill(pid_, SIGKILL);
  }
  /// The exit status, or minus the signal that ended it.
  int wait() {
    int status = 0;
    if (pid_ <= 0 || waitpid(std::exchange(pid_, 0), &status, 0) < 0) return -1;
    return WIFEXITED(status) ? WEXITSTATUS(status) : -WTERMSIG(status);
  }

 private:
  ChildProcess(const std::function<int(ByteChannel&)>& body, std::array<int, 2> sockets)
      : pid_(fork()), channel_(sockets[pid_ == 0 ? 1 : 0]) {
    (void)close(sockets[pid_ == 0 ? 0 : 1]);
    if (pid_ != 0) return;
    const int status = body(channel_);
    (void)fflush(nullptr);
    _exit(status);  // what the parent registered to run at its end is the parent's
  }
  static std::array<int, 2> make_sockets() {
    std::array<int, 2> sockets{};
    (void)fflush(nullptr);  // or the child writes out what is waiting here too
    if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, sockets.data()) != 0) std::abort();
    return sockets;
  }

  pid_t pid_;
  ByteChannel channel_;
};

}  // namespace mkernel::test
