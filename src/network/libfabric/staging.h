// Writes by way of bounce buffers, for heaps that the network does not reach.
//
// Each pair of ranks has `slots` buffers in each direction, at the sender and, of the same number,
// at the receiver. A write is cut into pieces of at most a buffer's size; a piece is copied from
// the heap into a free slot, goes with a header into the receiver's slot, and is copied into its
// heap. Then the receiver gives credit, and with that the slot is free again at both ends.
//
// Invariants:
//  1. A receiver's slot is written only between its credit and the next piece's arrival, because
//     only the sender's slot of the same number writes it, and that one waits for the credit.
//  2. A write completes when all its pieces have credit, so when it is in the peer's heap. An
//     immediate shows when all pieces of its write are in the heap, in whatever order they came.
//  3. Credit waits for copies alone, which wait for nobody; a piece waits for credit alone. So no
//     number of slots, senders or pieces deadlocks.
//
// The immediate of each wire transfer says what it is; it fits into 32 bits.
#pragma once
#include <memory>

#include "network/libfabric/landing.h"
#include "network/libfabric/path.h"
#include "network/libfabric/takeoff.h"

namespace mkernel::libfabric {

class StagedPath final : public Path {
 public:
  static Result<std::unique_ptr<StagedPath>> create(Port& port, Wire& wire, SymmetricHeap& heap,
                                                    const StagingConfig& config);

  void describe(EndpointAddress& address) const override;
  Status connect(const EndpointAddress& peer) override;
  void begin(const CheckedWrite& write) override { takeoff_->begin(write); }
  Status handle(const WireEvent& event) override;
  Status progress() override;
  bool idle() const override { return takeoff_->idle() && landing_->idle(); }
  void unregister() override;
  Result<bool> settled() override;

 private:
  explicit StagedPath(Wire& wire, const StagingConfig& config) : wire_(wire), config_(config) {}

  Wire& wire_;
  const StagingConfig config_;
  std::unique_ptr<Takeoff> takeoff_;
  std::unique_ptr<Landing> landing_;
};

}  // namespace mkernel::libfabric
