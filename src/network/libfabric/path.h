// How the bytes of a write travel: straight from heap to heap. The endpoint has checked the write;
// it is reported once, as completed or failed. One longer than the provider takes goes in parts;
// the link keeps no order, so its immediate then follows only when all parts were delivered.
//
// Threads: one.
#pragma once
#include <cstdint>
#include <deque>
#include <memory>
#include <vector>

#include <mkernel/status.h>

#include "network/libfabric/pinned.h"
#include "network/libfabric/regions.h"
#include "network/libfabric/wire.h"
#include "network/transport.h"

namespace mkernel::libfabric {

struct CheckedWrite {
  Write write;
  Source source;  // null, with no bytes and for a flag
  Target target;  // the same
};

class Path {
 public:
  struct Config {
    uint32_t rank;
    uint32_t num_ranks;
    uint32_t max_in_flight;
    uint64_t max_message_bytes;
  };
  /// Makes the heap's flag region known to the provider.
  static Result<std::unique_ptr<Path>> create(Port& port, Wire& wire, SymmetricHeap& heap,
                                              const Config& config);

  /// The own flag region, for peers, and that of a peer.
  const RemoteMemory& flags() const { return flags_.remote; }
  void connect(uint32_t peer, const RemoteMemory& flags) { flags_of_peer_[peer] = flags; }

  void begin(const CheckedWrite& write);
  void handle(const WireEvent& event);
  /// Whether no write is under way.
  bool idle() const { return free_.size() == states_.size(); }
  /// Takes all memory back from the provider.
  void unregister() {
    flags_.region.reset();
    flag_values_->unregister();
  }

  /// To be reported by poll().
  std::deque<Event> events;

 private:
  struct State {
    CheckedWrite checked;
    uint64_t next = 0;     // bytes of the write that were given to the wire
    uint32_t parts = 0;    // transfers with the wire
    bool signals = false;  // the immediate is still to be sent
    bool failed = false;
  };
  Path(Wire& wire, const Config& config, bool data_names_rank);
  /// Sends what the write can send now; with nothing left to send or to wait for, it has ended.
  void advance(uint32_t state_idx);
  Transfer* new_part(uint32_t state_idx, uint64_t bytes);
  void send_data(uint32_t state_idx);
  void send_flag(uint32_t state_idx);
  void carry_immediate(Transfer& transfer, State& state) const;

  Wire& wire_;
  const Config config_;
  const bool data_names_rank_;  // an immediate has room for its sender
  Registration flags_;
  std::unique_ptr<PinnedMemory> flag_values_;  // a word for each state: what a flag is to hold
  std::vector<RemoteMemory> flags_of_peer_;
  std::vector<State> states_;
  std::vector<uint32_t> free_;
};

}  // namespace mkernel::libfabric
