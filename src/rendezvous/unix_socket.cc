#include "rendezvous/unix_socket.h"

#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstddef>
#include <cstring>
#include <utility>

#include "rendezvous/text.h"

namespace mkernel {
namespace {

constexpr int kBacklog = 1024;
constexpr size_t kMaxBytes = 64;

struct Name {
  sockaddr_un address{};
  socklen_t length;
  const sockaddr* get() const { return reinterpret_cast<const sockaddr*>(&address); }
};

Name name_of(const std::string& text) {
  Name name;
  name.address.sun_family = AF_UNIX;
  const size_t count = std::min(text.size(), sizeof name.address.sun_path - 1);
  std::memcpy(name.address.sun_path + 1, text.data(), count);
  name.length = static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + 1 + count);
  return name;
}

Result<OwnedFd> new_socket() {
  OwnedFd fd(socket(AF_UNIX, SOCK_SEQPACKET | SOCK_NONBLOCK | SOCK_CLOEXEC, 0));
  if (!fd) return Status(Code::kUnavailable, "Unix socket: " + text_of_errno(errno));
  return fd;
}

bool is_not_now() { return errno == EAGAIN || errno == EWOULDBLOCK; }

/// The descriptors that came with a message; more than one are closed.
OwnedFd fd_of(msghdr& header, size_t* count) {
  OwnedFd first;
  *count = 0;
  for (cmsghdr* c = CMSG_FIRSTHDR(&header); c != nullptr; c = CMSG_NXTHDR(&header, c)) {
    if (c->cmsg_level != SOL_SOCKET || c->cmsg_type != SCM_RIGHTS) continue;
    for (size_t at = CMSG_LEN(0); at + sizeof(int) <= c->cmsg_len; at += sizeof(int)) {
      int fd = -1;
      std::memcpy(&fd, reinterpret_cast<const char*>(c) + at, sizeof fd);
      OwnedFd owned(fd);
      if ((*count)++ == 0) first = std::move(owned);
    }
  }
  return first;
}

}  // namespace

Result<OwnedFd> listen_at_name(const std::string& name) {
  Result<OwnedFd> fd = new_socket();
  if (!fd) return fd;
  const Name address = name_of(name);
  if (bind(fd->get(), address.get(), address.length) != 0 || listen(fd->get(), kBacklog) != 0) {
    return Status(Code::kUnavailable, "Unix socket @" + name + ": " + text_of_errno(errno));
  }
  return fd;
}

Result<OwnedFd> connect_to_name(const std::string& name) {
  Result<OwnedFd> fd = new_socket();
  if (!fd) return fd;
  const Name address = name_of(name);
  for (;;) {
    if (connect(fd->get(), address.get(), address.length) == 0) return fd;
    if (is_not_now()) return OwnedFd();
    if (errno != EINTR) break;
  }
  return Status(Code::kUnavailable, "connect to @" + name + ": " + text_of_errno(errno));
}

bool is_of_this_user(int fd) {
  ucred other{};
  socklen_t length = sizeof other;
  return getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &other, &length) == 0 && other.uid == geteuid();
}

Result<bool> send_with_fd(int socket, std::string_view bytes, int fd) {
  iovec part{.iov_base = const_cast<char*>(bytes.data()), .iov_len = bytes.size()};
  alignas(cmsghdr) std::array<char, CMSG_SPACE(sizeof(int))> control{};
  msghdr header{};
  header.msg_iov = &part;
  header.msg_iovlen = 1;
  if (fd >= 0) {
    header.msg_control = control.data();
    header.msg_controllen = control.size();
    cmsghdr* const c = CMSG_FIRSTHDR(&header);
    c->cmsg_level = SOL_SOCKET;
    c->cmsg_type = SCM_RIGHTS;
    c->cmsg_len = CMSG_LEN(sizeof fd);
    std::memcpy(CMSG_DATA(c), &fd, sizeof fd);
  }
  for (;;) {
    if (sendmsg(socket, &header, MSG_NOSIGNAL) >= 0) return true;
    if (is_not_now()) return false;
    if (errno == EINTR) continue;
    if (errno == EBADF) {
      return Status(Code::kInvalidArgument,
                    "file descriptor " + std::to_string(fd) + " is not open");
    }
    return Status(Code::kPeerFailed, text_of_errno(errno));
  }
}

Result<bool> receive_with_fd(int socket, WithFd* received) {
  std::array<char, kMaxBytes> bytes;
  iovec part{.iov_base = bytes.data(), .iov_len = bytes.size()};
  alignas(cmsghdr) std::array<char, CMSG_SPACE(sizeof(int))> control{};
  msghdr header{};
  header.msg_iov = &part;
  header.msg_iovlen = 1;
  header.msg_control = control.data();
  header.msg_controllen = control.size();
  ssize_t count = 0;
  do {
    count = recvmsg(socket, &header, MSG_CMSG_CLOEXEC);
  } while (count < 0 && errno == EINTR);
  if (count < 0 && is_not_now()) return false;
  if (count < 0 && errno != ECONNRESET) return Status(Code::kPeerFailed, text_of_errno(errno));
  size_t num_fds = 0;
  received->fd = fd_of(header, &num_fds);
  received->bytes.assign(bytes.data(), static_cast<size_t>(std::max<ssize_t>(count, 0)));
  // Cut short: by a sender that is none of ours, or because this process may open no more files.
  if (num_fds > 1 || (header.msg_flags & (MSG_CTRUNC | MSG_TRUNC)) != 0) {
    return Status(Code::kUnavailable,
                  "its message was cut short; this process may be at its limit of open files");
  }
  return true;
}

}  // namespace mkernel
