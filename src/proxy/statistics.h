// What a proxy has done since it started.
#pragma once
#include <cstdint>

namespace mkernel {

/// Counters that only grow. Writer: the proxy's thread, but for `retries`, which the endpoint
/// counts; readers: any (sys, relaxed).
struct ProxyStatistics {
  uint64_t commands = 0;         // posted
  uint64_t bytes = 0;            // of their data
  uint64_t batches = 0;          // posts
  uint64_t partial_batches = 0;  // posts of less than a full batch, because no more was ready
  uint64_t room_waits = 0;       // times that commands began to wait for room in the network
  uint64_t retries = 0;          // of the endpoint
  uint64_t arrivals = 0;         // immediates that raised a flag
  uint64_t stale_arrivals = 0;   // immediates that came late or twice, and raised nothing
};

}  // namespace mkernel
