// A rank's end of a verbs network: one engine for both services. What differs between RC and SRD is
// how queue pairs are made and connected (set_up.cc) and what they promise (LinkTraits).
#pragma once
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <span>
#include <string>
#include <tuple>
#include <vector>

#include "network/caller.h"
#include "network/transport.h"
#include "network/verbs/nic_path.h"
#include "network/verbs/rail.h"
#include "network/verbs/regions.h"
#include "network/verbs/sender.h"

namespace mkernel::verbs {

struct EndpointConfig {
  Settings settings;
  SymmetricHeap* heap = nullptr;
  uint32_t rank = 0;
  uint32_t num_ranks = 0;
  uint64_t limit_ns = 0;  // of close()
  NicPath path = NicPath::kHost;
};

class VerbsEndpoint final : public Endpoint {
 public:
  /// Makes the queue pairs of opened rails.
  static Result<std::unique_ptr<Endpoint>> create(const EndpointConfig& config,
                                                  std::shared_ptr<Api> api,
                                                  std::vector<Rail> rails);
  ~VerbsEndpoint() override;
  VerbsEndpoint(const VerbsEndpoint&) = delete;
  VerbsEndpoint& operator=(const VerbsEndpoint&) = delete;

  LinkTraits traits() const override;
  std::string address() const override { return encode(address_); }
  Status connect(std::span<const std::string> address_of_rank) override;
  Result<std::string> export_region(const HeapRegion& region) override;
  Status import_region(uint32_t peer, uint64_t address, uint64_t bytes,
                       const std::string& key) override;
  void forget_region(uint64_t address) override;
  Status post(std::span<const Write> writes) override;
  Result<size_t> poll(std::span<Event> events) override;
  Status close() override;
  std::string last_error() const override { return sender_.failure(); }

 private:
  VerbsEndpoint(const EndpointConfig& config, std::shared_ptr<Api> api, std::vector<Rail> rails,
                uint32_t depth);

  /// A queue pair's receive side.
  struct Receiver {
    uint32_t rail = 0;
    uint32_t peer = 0;      // kConnected
    uint32_t num_owed = 0;  // receives to be posted again
  };
  struct Places {
    Location source, target;
  };

  // set_up.cc
  Status create_lanes();
  Status create_lane(uint32_t peer, uint32_t rail);
  Status register_flags(Rail& rail);
  Status check_address(const EndpointAddress& address, uint32_t peer) const;
  Status connect_peer(const EndpointAddress& address, uint32_t peer);
  Result<Route> connect_route(const EndpointAddress& address, uint32_t peer, uint32_t rail,
                              uint32_t queue);
  size_t lane_idx(uint32_t peer, uint32_t rail, uint32_t queue) const;

  Status error(Code code, const std::string& message) const;
  Status check_caller();
  Result<Places> places_of(const Write& w) const;
  Result<Location> flag_of(uint32_t peer, uint32_t flag) const;
  Status poll_rails();
  Result<size_t> poll_sends(Rail& rail);
  Result<size_t> poll_receives(Rail& rail, uint32_t rail_idx);
  Status receive(const Completion& completion, uint32_t rail_idx);
  Status post_receives(uint32_t lane, uint32_t count);
  Status drain();

  const EndpointConfig config_;
  const bool is_connected_service_;
  const uint32_t depth_;         // writes in flight, and requests of a queue pair
  const uint32_t num_receives_;  // of a queue pair
  const std::shared_ptr<Api> api_;
  std::vector<Rail> rails_;
  EndpointAddress address_;
  std::vector<EndpointAddress> peers_;  // by rank; without rails: never written to
  // kDatagram: the handles by which peers are reached, and who is behind (rail, handle, number).
  std::vector<std::unique_ptr<AddressHandle>> handles_;
  std::map<std::tuple<uint32_t, uint32_t, uint32_t>, uint32_t> peer_of_source_;
  Regions regions_;
  Sender sender_;
  std::vector<Receiver> receivers_;      // by lane
  std::vector<Completion> completions_;  // of one poll
  std::vector<Places> places_;           // of one post
  Caller caller_;
  std::mutex registering_;  // regions come and go on another thread; closing waits for it
  bool is_ready_ = false;   // connected
  bool is_closed_ = false;
};

}  // namespace mkernel::verbs
