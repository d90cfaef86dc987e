// VerbsOptions with every choice made, and the rules of what a link layer knows.
#pragma once
#include <cstdint>
#include <optional>

#include <mkernel/options.h>
#include <mkernel/status.h>

#include "network/verbs/api.h"

namespace mkernel::verbs {

inline constexpr uint32_t kMaxRails = 8;

struct Settings {
  Service service = Service::kConnected;
  uint32_t port = 1;
  std::optional<uint32_t> gid_index = {};
  uint32_t traffic_class = 0;
  uint32_t service_level = 0;
  std::optional<uint32_t> mtu_bytes = {};
  uint32_t timeout = 0;
  uint32_t retry_count = 0;
  uint32_t rnr_retry = 0;
  uint32_t qps_per_peer = 1;
  std::optional<uint32_t> depth = {};
  uint64_t split_bytes = 0;
  bool relaxed_ordering = false;
};

/// Errors: invalid_argument, naming the option, its value and what is allowed.
Result<Settings> settings_of(const VerbsOptions& options, Service service);

/// Whether a link layer knows all that was asked for.
/// Errors: invalid_argument, naming the option and the device.
Status check_link(const VerbsOptions& options, LinkLayer link_layer, const std::string& device);

}  // namespace mkernel::verbs
