// What a proxy costs: per command while it is busy, and of a core while it is idle.
#pragma once
#include <cstdint>

#include <mkernel/options.h>
#include <mkernel/status.h>

namespace mkernel::app {

inline constexpr uint64_t kCommandBytes = 4096;

/// Of two proxies of this process over the loopback. Times in microseconds.
struct ProxyFigures {
  double command_us = 0;      // per command of kCommandBytes, queue and network included
  double command_cpu_us = 0;  // the part of the sender's proxy, as processor time
  double idle_share = 0;      // of a core, of one proxy
  // From the push of a command at an idle proxy until the flag is raised at an idle peer: by the
  // network, or by the peer's proxy, which has to see that something came.
  double seen_p50_us = 0, seen_p99_us = 0;
  double told_p50_us = 0, told_p99_us = 0;  // of a command that was announced, as by a launch
  double raised_p50_us = 0, raised_p99_us = 0;
};

Result<ProxyFigures> measure_proxies(const ClusterOptions& options, int64_t iters);

}  // namespace mkernel::app
