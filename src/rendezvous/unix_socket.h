// Unix sockets with names that are no files, and messages that carry a file descriptor.
#pragma once
#include <cstdint>
#include <string>
#include <string_view>

#include <mkernel/status.h>

#include "rendezvous/owned_fd.h"

namespace mkernel {

/// Listens at a name in this network name space; `name` without the leading zero byte.
Result<OwnedFd> listen_at_name(const std::string& name);

/// Connects to such a name. An empty descriptor: too many wait there already, try again.
Result<OwnedFd> connect_to_name(const std::string& name);

/// Whether the process at the other end is of this process' user. Names are seen by all users.
bool is_of_this_user(int fd);

/// Sends one message, and with it a descriptor unless fd is -1. False: not now, the socket is full.
Result<bool> send_with_fd(int socket, std::string_view bytes, int fd);

/// Receives one message of at most 64 bytes and what it carries. False: there is none yet.
struct WithFd {
  std::string bytes;  // empty: the other end has closed
  OwnedFd fd;
};
Result<bool> receive_with_fd(int socket, WithFd* received);

}  // namespace mkernel
