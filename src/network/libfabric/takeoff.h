// The sending half of staging (staging.h): from the heap through this rank's slots to the peer's.
#pragma once
#include <deque>
#include <memory>
#include <vector>

#include "network/libfabric/path.h"
#include "network/libfabric/pinned.h"
#include "network/libfabric/staging_format.h"

namespace mkernel::libfabric {

/// Threads: one.
class Takeoff {
 public:
  static Result<std::unique_ptr<Takeoff>> create(Wire& wire, Port& port, DeviceMemory& memory,
                                                 std::deque<Event>& events,
                                                 const StagingConfig& config);

  /// Where the peer's slots for this rank lie.
  void connect(uint32_t peer, const RemoteMemory& slots);
  void begin(const CheckedWrite& write);
  /// A piece was delivered, or failed.
  void handle(const WireEvent& event);
  /// The receiver has dealt with a piece.
  /// Errors: peer_failed for a slot that is not in use.
  Status handle_notice(const Notice& notice);
  /// Nothing more will come of what goes to this peer: all of it fails.
  void break_lane(uint32_t peer);
  Status progress();
  bool idle() const { return num_writes_ == 0 && copying_.empty(); }
  void unregister() { buffers_->unregister(); }
  Result<bool> settled();

 private:
  struct Pending {
    CheckedWrite checked;
    uint64_t number = 0;
    uint64_t next = 0;         // bytes that have been given to slots
    uint32_t pieces = 0;       // all together
    uint32_t pieces_left = 0;  // not yet in the peer's heap
    uint32_t in_slots = 0;     // pieces whose slot is not free again
    bool waits = true;         // for slots; it stands in its lane's queue
    bool ended = false;        // reported
  };
  struct Slot {
    Pending* write = nullptr;  // null: free
    uint64_t bytes = 0;        // of the transfer
    bool delivered = false;
    bool credited = false;
  };
  struct Lane {
    RemoteMemory slots_of_peer;
    uint64_t num_writes = 0;
    std::deque<Pending*> waiting;
    std::vector<Slot> slots;
    std::vector<uint32_t> free;
    bool broken = false;
  };
  struct Copy {
    uint32_t peer;
    uint32_t slot;
    uint64_t mark;
  };

  Takeoff(Wire& wire, std::deque<Event>& events, const StagingConfig& config);
  Status fill_slots(uint32_t peer);
  Status fill_slot(uint32_t peer, uint32_t slot_idx, Pending& write);
  void send(const Copy& copy);
  void return_piece(uint32_t peer, uint32_t slot_idx, bool placed);
  void end(Pending& write, Event::Kind kind);
  void release_if_done(Pending& write);

  Wire& wire_;
  std::deque<Event>& events_;
  const StagingConfig config_;
  std::unique_ptr<CopyChannel> channel_;
  std::unique_ptr<PinnedMemory> buffers_;
  std::vector<Lane> lanes_;        // by peer
  std::vector<uint32_t> to_fill_;  // peers with writes that wait for slots
  std::deque<Copy> copying_;       // in the order of the channel
  size_t num_writes_ = 0;          // begun and not reported
  std::deque<Pending> pool_;
  std::vector<Pending*> free_;
};

}  // namespace mkernel::libfabric
