// Two ends of a network in this process, each with a thread of its own, and what is measured of
// them: the same for a transport and for the plain sockets that it is compared with.
#pragma once
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include <mkernel/options.h>
#include <mkernel/status.h>

#include "host/host_stream.h"

namespace mkernel::app {

/// Bytes that chunks are taken from in turn, on either side: more than caches hold.
inline constexpr uint64_t kNetBytes = uint64_t{64} << 20;

/// Chunks that go one way, or go there and back.
struct NetCase {
  uint64_t bytes = 0;  // of a chunk, 1 to kNetBytes
  int64_t chunks = 0;
  int64_t depth = 1;  // chunks on their way at once; sockets have a window of their own
};

class NetPair {
 public:
  virtual ~NetPair() = default;
  /// Chunks from one end to the other: the time from the first one's start until the sender knows
  /// that all are there.
  virtual Result<double> stream_us(const NetCase& c) = 0;
  /// Chunks there and back, one after the other: half the time of each.
  virtual Result<std::vector<double>> latencies_us(const NetCase& c) = 0;
  /// Whether the second end holds what the first one sent; afterwards it does not any more.
  virtual bool take_arrived(const NetCase& c) = 0;
};

/// Where chunk number i of a case lies, on either side.
inline uint64_t offset_of_chunk(const NetCase& c, uint64_t i) {
  return i % (kNetBytes / c.bytes) * c.bytes;
}

/// Puts something into memory of kNetBytes that can be told from what was there.
void fill_source(char* data);
/// What take_arrived does.
bool take_equal(const char* sent, char* received, const NetCase& c);

/// The two threads of a pair.
class TwoThreads {
 public:
  /// Runs both at once and waits for both. The error of the first, if both have one.
  Status run(const std::function<Status()>& first, const std::function<Status()>& second) {
    Status of_first, of_second;
    first_.enqueue([&] { of_first = first(); });
    second_.enqueue([&] { of_second = second(); });
    first_.synchronize();
    second_.synchronize();
    return of_first ? of_second : of_first;
  }

 private:
  HostStream first_, second_;
};

/// Over a transport of mkernel, by its name.
Result<std::unique_ptr<NetPair>> create_transport_pair(const std::string& transport,
                                                       const ClusterOptions& options);

/// Over TCP on 127.0.0.1, with blocking sockets.
Result<std::unique_ptr<NetPair>> create_tcp_pair(const ClusterOptions& options);

}  // namespace mkernel::app
