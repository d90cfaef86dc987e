// NICs and a fabric between them, in memory: what verbs promise, and no more. It refuses or reports
// what a real one would (depths, keys, ranges, states, addresses), and what a real one would let
// pass and go wrong (a second thread that posts, an overrun completion queue).
//
// Nothing moves by itself: whoever polls a completion queue moves the requests of its own device,
// some steps in an order drawn from the seed. RC places requests of a queue pair one after the
// other; SRD places pieces of any of them, and completes them, in any order.
#pragma once
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "network/verbs/api.h"
#include "network/verbs/verbs.h"

namespace mkernel::test {

struct FakeDevice {
  std::string name = "fake0";
  verbs::LinkLayer link_layer = verbs::LinkLayer::kEthernet;
  bool is_active = true;
  uint32_t max_depth = 4096;  // of each queue
  uint32_t max_cqe = 1 << 20;
  uint32_t max_queue_pairs = 1024;
  uint32_t mtu_bytes = 4096;
  uint64_t max_message_bytes = 1 << 30;
  uint32_t inline_bytes = 64;
  bool can_write = true;  // of EFA
  bool takes_dmabuf = false;
  bool takes_foreign = true;  // memory that FakeConfig calls foreign, as it is
  // Entries of the GID table; without any, one that names rank and device.
  std::vector<std::optional<verbs::GidEntry>> gids = {};
  std::set<uint32_t> unreadable_gids = {};
};

struct FakeConfig {
  std::vector<FakeDevice> devices = {FakeDevice{}};  // of every rank
  uint64_t seed = 1;
  bool repeats_immediates = false;  // SRD: now and then one comes again, later
  bool late_immediates = false;     // SRD: now and then one comes long after its write is complete
  // Memory that is not the host's, as a GPU's.
  std::function<bool(const void*)> is_foreign = [](const void*) { return false; };
  bool fails_tests = true;  // what a real NIC would not forgive fails the test at once
};

struct FakeRegistration {
  uint32_t rank;
  std::string device = {};
  uint64_t address, bytes;
  verbs::Access access;
  bool by_dmabuf = false;
};

class FakeWorld;

/// Threads: any.
class FakeFabric {
 public:
  explicit FakeFabric(const FakeConfig& config = {});
  std::shared_ptr<verbs::Api> api(uint32_t rank);

  /// Stops, or lets go on, all devices of this name.
  void hold(const std::string& device, bool is_held);
  /// The rank is gone: nothing answers, nothing moves.
  void kill(uint32_t rank);
  /// The n-th request posted from now on, counted from 0, completes with this error.
  void fail_request(uint64_t n, const char* error);
  /// Takes the keys of a rank's registrations away, as if they had never been.
  void revoke_keys(uint32_t rank);

  uint64_t num_doorbells() const;
  uint64_t num_requests() const;
  uint64_t num_signaled() const;
  std::vector<FakeRegistration> registrations() const;  // that live
  std::vector<std::string> violations() const;

 private:
  std::shared_ptr<FakeWorld> world_;
};

}  // namespace mkernel::test
