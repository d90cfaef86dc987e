// Writes straight from heap to heap. A write longer than the provider takes goes in parts; the link
// keeps no order, so its immediate then follows only when all parts were delivered.
#pragma once
#include <memory>
#include <vector>

#include "network/libfabric/path.h"
#include "network/libfabric/pinned.h"

namespace mkernel::libfabric {

class DirectPath final : public Path {
 public:
  struct Config {
    uint32_t rank;
    uint32_t num_ranks;
    uint32_t max_in_flight;
    uint64_t max_message_bytes;
  };
  /// Makes the heap's flag region known to the provider.
  static Result<std::unique_ptr<DirectPath>> create(Port& port, Wire& wire, SymmetricHeap& heap,
                                                    const Config& config);

  void describe(EndpointAddress& address) const override { address.landing = flags_.remote; }
  Status connect(const EndpointAddress& peer) override;
  void begin(const CheckedWrite& write) override;
  Status handle(const WireEvent& event) override;
  Status progress() override { return Status::ok(); }
  bool idle() const override { return free_.size() == states_.size(); }
  void unregister() override {
    flags_.region.reset();
    flag_values_->unregister();
  }
  Result<bool> settled() override { return true; }

 private:
  struct State {
    CheckedWrite checked;
    uint64_t next = 0;     // bytes of the write that were given to the wire
    uint32_t parts = 0;    // transfers with the wire
    bool signals = false;  // the immediate is still to be sent
    bool failed = false;
  };
  DirectPath(Wire& wire, const Config& config, bool data_names_rank);
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
