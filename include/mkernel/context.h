// A Context is one rank of a cluster: its device, its work space, its links to the other ranks.
#pragma once
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include <mkernel/options.h>
#include <mkernel/rendezvous.h>
#include <mkernel/status.h>

namespace mkernel {

namespace detail {
class Rank;
class StreamImpl;
}  // namespace detail

/// A stream as a caller hands it over: a cudaStream_t, or what Stream::handle() gives.
using StreamHandle = void*;

/// An owned stream of work on a rank's device. Work runs in the order in which it was enqueued.
class Stream {
 public:
  explicit Stream(std::unique_ptr<detail::StreamImpl> impl);
  ~Stream();
  Stream(Stream&&) noexcept;
  Stream& operator=(Stream&&) noexcept;
  StreamHandle handle() const;

 private:
  std::unique_ptr<detail::StreamImpl> impl_;
};

/// Device memory of a rank, freed with the object.
class Buffer {
 public:
  Buffer(std::shared_ptr<detail::Rank> rank, void* data, uint64_t bytes);
  ~Buffer();
  Buffer(Buffer&&) noexcept;
  Buffer& operator=(Buffer&&) noexcept;
  void* data() const { return data_; }
  uint64_t bytes() const { return bytes_; }

 private:
  std::shared_ptr<detail::Rank> rank_;
  void* data_ = nullptr;
  uint64_t bytes_ = 0;
};

/// What the proxy between a rank's kernels and its network did. Units: bytes, counts.
struct ProxyTotals {
  uint64_t commands = 0;         // writes that kernels asked for and the network was given
  uint64_t bytes = 0;            // of their data
  uint64_t batches = 0;          // posts
  uint64_t partial_batches = 0;  // posts of less than a full batch, because no more was ready
  uint64_t room_waits = 0;       // times that commands began to wait for room or credit
  uint64_t retries = 0;          // sends that the network below had no room for at first, or lost
  uint64_t arrivals = 0;         // flags raised for peers, where the network does not do it
  uint64_t stale_arrivals = 0;   // what came late or twice, and raised nothing
};

/// What a rank did since its context was made. Units: bytes, counts.
struct RankStatistics {
  uint64_t launches = 0;
  uint64_t tiles = 0;          // output tiles computed
  uint64_t local_bytes = 0;    // written to ranks of the same node
  uint64_t network_bytes = 0;  // handed to the network
  uint64_t waits = 0;          // waits that did not find what they waited for at once
  ProxyTotals proxy;           // zero where there is one node
};

/// One rank of a cluster. Threads: calls for different ranks may come from different threads; calls
/// for one rank come from one thread at a time, and all ranks make the same calls in the same
/// order. Destroy a cluster's contexts only when no launch is in flight (synchronize each stream
/// first).
class Context {
 public:
  /// All nodes * gpus ranks of a cluster in this process, in rank order: rank = node * gpus + gpu.
  /// On CUDA devices ranks are dealt to the GPUs in turn; several ranks may share one.
  /// Errors: invalid_argument for a count below 1 or an option out of its range; unsupported for a
  /// device or transport that this build is without; unavailable if there is no such device.
  static Result<std::vector<Context>> create_virtual(const ClusterOptions& options);

  /// One rank of a cluster of processes: this process's. Collective: all processes call it, as
  /// often and in the same order; each has the GPU with its number among the processes of its host.
  /// nodes and gpus may be 0: then they are found from who shares a host.
  /// Errors: as above, and what went wrong on another rank; invalid_argument if processes and
  /// options do not fit; unavailable if two processes have the same GPU; timeout, naming the
  /// ranks that did not come.
  static Result<Context> create(const ClusterOptions& options, const RendezvousOptions& rendezvous);

  Context(Context&&) noexcept;
  Context& operator=(Context&&) noexcept;
  ~Context();

  int rank() const;
  int world_size() const;
  int nodes() const;
  int gpus() const;
  DeviceKind device() const;
  /// "loopback", or "none" where there is one node.
  std::string transport() const;

  Result<Stream> create_stream();
  Result<Buffer> allocate(uint64_t bytes);
  /// Copies between host and this rank's device; complete on return, not ordered with streams.
  Status upload(void* device, const void* host, uint64_t bytes);
  Status download(void* host, const void* device, uint64_t bytes);

  /// Waits for all work on a stream.
  /// Errors: timeout or peer_failed with who waited for what, if a launch of any rank of this
  /// cluster failed; from then on every synchronize, and every run and creation of a plan, of
  /// these contexts fails with it.
  Status synchronize(StreamHandle stream);

  /// Totals so far; call it between launches (synchronize first).
  Result<RankStatistics> statistics() const;

  /// For operators.
  const std::shared_ptr<detail::Rank>& impl() const { return rank_; }

 private:
  explicit Context(std::shared_ptr<detail::Rank> rank);
  std::shared_ptr<detail::Rank> rank_;
};

}  // namespace mkernel
