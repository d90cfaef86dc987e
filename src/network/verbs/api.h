// The calls of an RDMA verbs library that mkernel makes, and nothing else: what a NIC is to the
// engine above (endpoint.h). Plain C++ without a verbs header, so that engine and tests are built
// everywhere. Two kinds implement it: the libraries of the system, found at run time
// (system_api.h), and a fake one of the tests.
//
// Objects are destroyed children first: queue pairs, then queues and memory, then the device.
// Threads: a queue pair and its completion queues belong to one thread; registering memory may be
// done by any.
#pragma once
#include <array>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include <mkernel/status.h>

namespace mkernel::verbs {

enum class LinkLayer : uint8_t { kInfiniband, kEthernet, kEfa };

/// What a queue pair promises.
enum class Service : uint8_t {
  kConnected,  // RC: one peer, in order
  kDatagram,   // SRD: any peer by address handle, reliable, no order
};

using Gid = std::array<uint8_t, 16>;
enum class GidType : uint8_t { kInfiniband, kRoceV1, kRoceV2 };
struct GidEntry {
  Gid gid;
  GidType type;
};

struct DeviceLimits {
  uint32_t max_sends = 0;     // requests of one queue pair
  uint32_t max_receives = 0;  // the same, of its receive queue
  uint32_t max_cqe = 0;       // entries of one completion queue
  uint32_t max_queue_pairs = 0;
};

struct PortInfo {
  bool active = false;
  std::string state = {};  // in words, for messages
  LinkLayer link_layer = LinkLayer::kInfiniband;
  uint32_t lid = 0;
  uint32_t mtu_bytes = 0;
  uint64_t max_message_bytes = 0;
  uint32_t num_gids = 0;
};

/// What an EFA device says of itself beyond the limits of verbs.
struct EfaInfo {
  bool can_write = false;  // RDMA write
  bool retries_rnr = false;
  uint64_t max_write_bytes = 0;
};

/// Access rights of registered memory. Local reads are always allowed.
struct Access {
  bool local_write = false;
  bool remote_write = false;
  /// Writes from the network may be placed in any order. Never for flags.
  bool relaxed_ordering = false;
};

class MemoryRegion {
 public:
  virtual ~MemoryRegion() = default;
  virtual uint32_t lkey() const = 0;
  virtual uint32_t rkey() const = 0;
};

class AddressHandle {
 public:
  virtual ~AddressHandle() = default;
  /// How completions of the receiver name the peer behind it.
  virtual uint32_t number() const = 0;
};

/// An RDMA write, with or without an immediate.
struct SendRequest {
  uint64_t id = 0;
  uint64_t local_address = 0;
  uint64_t remote_address = 0;
  uint32_t bytes = 0;
  uint32_t lkey = 0;
  uint32_t rkey = 0;
  std::optional<uint32_t> immediate = {};
  bool signaled = true;    // kDatagram: always
  bool is_inline = false;  // the bytes are read before post_send returns
  // Of kDatagram.
  const AddressHandle* handle = nullptr;
  uint32_t remote_number = 0;
  uint32_t remote_qkey = 0;
};

/// Where an immediate is received; its bytes go where the write says, not here.
struct ReceiveRequest {
  uint64_t id = 0;
  uint64_t address = 0;
  uint32_t bytes = 0;
  uint32_t lkey = 0;
};

struct Completion {
  enum class Outcome : uint8_t { kSuccess, kFlushed, kError };
  uint64_t id = 0;
  Outcome outcome = Outcome::kSuccess;
  const char* error = "";  // what went wrong, in the library's words; lives for ever
  std::optional<uint32_t> immediate = {};  // of a receive
  // Who sent it; of kDatagram.
  uint32_t source_handle = 0;
  uint32_t source_number = 0;
};

class CompletionQueue {
 public:
  virtual ~CompletionQueue() = default;
  virtual Result<size_t> poll(std::span<Completion> completions) = 0;
};

struct QueuePairConfig {
  Service service = Service::kConnected;
  uint32_t port = 1;
  uint32_t send_depth = 0;
  uint32_t receive_depth = 0;
  uint32_t inline_bytes = 0;  // wanted
  uint32_t qkey = 0;          // kDatagram: what a sender must name
  CompletionQueue* send_completions = nullptr;
  CompletionQueue* receive_completions = nullptr;
};

/// The way to a peer and the rules of retrying.
struct ConnectConfig {
  uint32_t port = 1;
  uint32_t sequence = 0;  // of this side's first packet, 24 bits
  uint32_t rnr_retry = 7;
  // The rest is of kConnected.
  uint32_t remote_number = 0;
  uint32_t remote_sequence = 0;
  uint32_t remote_lid = 0;
  Gid remote_gid{};
  bool is_global = false;  // routed by GIDs: always on Ethernet
  uint32_t gid_index = 0;  // of this side
  uint32_t traffic_class = 0;
  uint32_t service_level = 0;
  uint32_t mtu_bytes = 0;
  uint32_t timeout = 0;  // 4.096 us * 2^timeout
  uint32_t retry_count = 0;
};

class QueuePair {
 public:
  virtual ~QueuePair() = default;
  virtual uint32_t number() const = 0;
  /// Bytes that a request may carry inline; 0: none.
  virtual uint32_t inline_bytes() const = 0;
  /// Makes it ready to receive and to send. Receives may be posted before.
  virtual Status connect(const ConnectConfig& config) = 0;
  /// Posts all requests as one chain, in order. After a failure the queue pair is of no use.
  virtual Status post_send(std::span<const SendRequest> requests) = 0;
  virtual Status post_receive(std::span<const ReceiveRequest> requests) = 0;
};

/// An opened device and its protection domain.
class Device {
 public:
  virtual ~Device() = default;
  virtual Result<DeviceLimits> limits() = 0;
  virtual Result<PortInfo> port(uint32_t port) = 0;
  /// An entry of the GID table; none where it is empty.
  virtual Result<std::optional<GidEntry>> gid(uint32_t port, uint32_t index) = 0;
  /// Errors: unsupported if this is no EFA device, or the library is none of its kind.
  virtual Result<EfaInfo> efa() = 0;

  virtual Result<std::unique_ptr<CompletionQueue>> create_completion_queue(uint32_t depth) = 0;
  virtual Result<std::unique_ptr<QueuePair>> create_queue_pair(const QueuePairConfig& config) = 0;
  virtual Result<std::unique_ptr<AddressHandle>> create_address_handle(uint32_t port,
                                                                       uint32_t gid_index,
                                                                       const Gid& remote) = 0;
  /// Memory that peers address by its own addresses.
  virtual Result<std::unique_ptr<MemoryRegion>> register_memory(void* data, uint64_t bytes,
                                                                const Access& access) = 0;
  /// The same for memory of another device, which begins at `offset` of a dma-buf.
  virtual Result<std::unique_ptr<MemoryRegion>> register_dmabuf(int fd, uint64_t offset,
                                                                uint64_t bytes, uint64_t address,
                                                                const Access& access) = 0;
};

/// The devices of a machine.
class Api {
 public:
  virtual ~Api() = default;
  virtual Result<std::vector<std::string>> devices() = 0;
  virtual Result<std::unique_ptr<Device>> open(const std::string& name) = 0;
};

}  // namespace mkernel::verbs
