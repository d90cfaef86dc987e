// The Endpoint over libfabric: holds callers to the contract, resolves heap addresses, and leaves
// the way of the bytes to a Path.
#pragma once
#include <atomic>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "memory/symmetric_heap.h"
#include "network/libfabric/messages.h"
#include "network/libfabric/path.h"
#include "network/libfabric/port.h"
#include "network/libfabric/regions.h"
#include "network/libfabric/wire.h"
#include "network/transport.h"

namespace mkernel::libfabric {

struct EndpointConfig {
  uint32_t rank;
  uint32_t num_ranks;
  uint32_t max_in_flight;
  uint64_t limit_ns;
};

class LibfabricEndpoint final : public Endpoint {
 public:
  LibfabricEndpoint(const EndpointConfig& config, SymmetricHeap& heap, std::unique_ptr<Port> port);
  ~LibfabricEndpoint() override { (void)close(); }
  LibfabricEndpoint(const LibfabricEndpoint&) = delete;
  LibfabricEndpoint& operator=(const LibfabricEndpoint&) = delete;

  /// Once, before anything else.
  Status open_path(const LibfabricOptions& options);

  LinkTraits traits() const override {
    return {.in_order = false, .immediate_bits = 32, .max_in_flight = config_.max_in_flight};
  }
  std::string address() const override { return encode(own_address_); }
  Status connect(std::span<const std::string> address_of_rank) override;
  Result<std::string> export_region(const HeapRegion& region) override;
  Status import_region(uint32_t peer, uint64_t address, uint64_t bytes,
                       const std::string& key) override;
  void forget_region(uint64_t address) override { regions_.forget(address); }
  Status post(std::span<const Write> writes) override;
  Result<size_t> poll(std::span<Event> events) override;
  EndpointStatistics statistics() const override { return {.retries = wire_->num_retries()}; }
  std::string last_error() const override { return wire_->last_error(); }
  Status close() override;

 private:
  Status error(Code code, const std::string& message) const;
  Status check_caller();
  Status check_peer(const EndpointAddress& peer, uint32_t rank) const;
  Result<CheckedWrite> check_write(const Write& write) const;
  Status out_of_bounds(const Write& write, bool at_peer) const;
  Status make_progress(size_t limit);
  Status drain();

  const EndpointConfig config_;
  SymmetricHeap& heap_;
  std::atomic<std::thread::id> owner_{};  // the first caller of post or poll
  EndpointAddress own_address_;
  std::vector<bool> connected_;  // by rank
  uint32_t in_flight_ = 0;
  bool closed_ = false;
  // Each uses those above it, so they go in the opposite order.
  std::unique_ptr<Port> port_;
  Regions regions_;
  std::unique_ptr<Wire> wire_;
  std::unique_ptr<Path> path_;  // null once closed
  std::vector<WireEvent> wire_events_;
  std::vector<CheckedWrite> checked_;
};

}  // namespace mkernel::libfabric
