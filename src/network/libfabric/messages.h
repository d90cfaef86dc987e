// What endpoints tell each other through the caller, as bytes: addresses and keys of regions. Both
// begin with what they are, a version and their length, so that anything else is refused.
#pragma once
#include <cstdint>
#include <string>

#include <mkernel/status.h>

#include "network/libfabric/port.h"

namespace mkernel::libfabric {

struct EndpointAddress {
  uint32_t rank = 0;
  uint32_t num_ranks = 0;
  std::string provider = {};  // as libfabric spells it
  std::string name = {};      // for the address vector
  RemoteMemory flags = {};
};
std::string encode(const EndpointAddress& address);
/// Errors: invalid_argument.
Result<EndpointAddress> decode_address(const std::string& bytes);

struct RegionKey {
  uint32_t rank = 0;  // its owner
  uint64_t address = 0;
  uint64_t bytes = 0;
  RemoteMemory memory = {};
};
std::string encode(const RegionKey& key);
/// Errors: invalid_argument.
Result<RegionKey> decode_key(const std::string& bytes);

}  // namespace mkernel::libfabric
