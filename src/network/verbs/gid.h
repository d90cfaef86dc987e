// Which entry of a port's GID table a link uses.
#pragma once
#include <cstdint>
#include <optional>

#include <mkernel/status.h>

#include "core/log.h"
#include "network/verbs/api.h"

namespace mkernel::verbs {

struct ChosenGid {
  uint32_t index;
  Gid gid;
};

/// The entry `wanted`, or else the best one: on Ethernet RoCE v2 with an IPv4 address, then RoCE v2
/// with a routable IPv6 address, then RoCE v2; on other links the first entry. Of equals the first.
/// An entry that cannot be read is skipped, with a line in the log.
/// Errors: unavailable if `wanted` is empty or unreadable, or there is none; both name the device.
Result<ChosenGid> choose_gid(Device& device, const std::string& name, uint32_t port,
                             const PortInfo& info, std::optional<uint32_t> wanted, const Log& log);

}  // namespace mkernel::verbs
