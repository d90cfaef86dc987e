// One NIC of a rank: the opened device with what all its queue pairs share.
#pragma once
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include <mkernel/options.h>
#include <mkernel/status.h>

#include "core/log.h"
#include "network/verbs/address.h"
#include "network/verbs/api.h"
#include "network/verbs/gid.h"
#include "network/verbs/settings.h"

namespace mkernel::verbs {

struct Rail {
  std::string name = {};
  std::unique_ptr<Device> device;  // before, and so destroyed after, everything made with it
  DeviceLimits limits;
  PortInfo port;
  ChosenGid gid{};
  uint64_t max_write_bytes = 0;

  std::unique_ptr<CompletionQueue> sends;
  std::unique_ptr<CompletionQueue> receives;
  uint32_t sends_room = 0;  // entries of `sends` that no posted request has a claim on

  /// Registered words: a source for each flag on its way, and behind them one that receives name.
  std::vector<uint32_t> words = {};
  std::unique_ptr<MemoryRegion> words_region;
  std::unique_ptr<MemoryRegion> flags_region;  // the rank's flags
};

/// Opens the devices that the options name, or the first of the candidates that can be used: what
/// is passed over is said in the log. All have the same link layer. Errors: unavailable (no such
/// device, port down, no GID), unsupported (what `service` needs is missing), invalid_argument (an
/// option that the link does not know).
Result<std::vector<Rail>> open_rails(Api& api, const VerbsOptions& options,
                                     std::span<const std::string> candidates,
                                     const Settings& settings, const Log& log);

/// Makes the queues and words of a rail for `num_lanes` queue pairs of these depths.
Status prepare_rail(Rail& rail, uint32_t num_lanes, uint32_t send_depth, uint32_t receive_depth);

}  // namespace mkernel::verbs
