// What ranks tell each other before they can write: the bytes behind Endpoint::address() and
// export_region(). Other transports, versions and truncated strings are refused, not guessed at.
#pragma once
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include <mkernel/status.h>

#include "network/verbs/api.h"

namespace mkernel::verbs {

struct RailAddress {
  Gid gid{};
  uint32_t lid = 0;
  LinkLayer link_layer = LinkLayer::kInfiniband;
  uint32_t mtu_bytes = 0;
  uint32_t flags_rkey = 0;
};

struct EndpointAddress {
  Service service = Service::kConnected;
  uint32_t rank = 0;
  uint32_t num_ranks = 0;
  uint32_t qps_per_peer = 0;
  uint32_t sequence = 0;  // of the first packet of every queue pair
  uint32_t qkey = 0;
  uint64_t flags_address = 0;
  std::vector<RailAddress> rails = {};
  // kConnected: by peer, rail, queue (the own rank's are 0); kDatagram: by rail, queue.
  std::vector<uint32_t> qp_numbers = {};

  uint32_t qp_number(uint32_t peer, uint32_t rail, uint32_t queue) const {
    const size_t peer_idx = service == Service::kConnected ? peer : 0;
    return qp_numbers[(peer_idx * rails.size() + rail) * qps_per_peer + queue];
  }
  size_t num_qps() const {
    return (service == Service::kConnected ? num_ranks : 1) * rails.size() * qps_per_peer;
  }
};

std::string encode(const EndpointAddress& address);
/// Errors: invalid_argument.
Result<EndpointAddress> decode_address(const std::string& bytes);

struct RegionKey {
  uint64_t address = 0;
  std::vector<uint32_t> rkeys = {};  // by rail
};

std::string encode(const RegionKey& key);
/// Errors: invalid_argument.
Result<RegionKey> decode_key(const std::string& bytes);

}  // namespace mkernel::verbs
