// Who a process is, as others need to know it: on which host, and by which names a person finds it.
#pragma once
#include <cstddef>
#include <cstdint>
#include <string>

#include <mkernel/status.h>

namespace mkernel {

constexpr size_t kMaxHostBytes = 256;  // of each text below

struct Identity {
  // Equal for two processes if they can hand each other memory and files: same boot of a machine,
  // and same network name space, in which their Unix sockets live. Not the machine id: containers
  // of one host have their own.
  std::string host_id;
  std::string host_name;  // for messages
  uint32_t pid = 0;       // for messages
};

/// Errors:  unavailable if the system does not tell one boot from another.
Result<Identity> identity_of_this_process();

/// "rank 3 (host h, pid 17)".
std::string name_of_rank(uint32_t rank, const Identity& identity);

}  // namespace mkernel
