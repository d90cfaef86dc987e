// The two halves of staging and the endpoint around them (staged.h).
#pragma once
#include <deque>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "network/caller.h"
#include "network/staged_slots.h"

namespace mkernel {

/// Writes on the endpoint below that wait for room there.
class Outbox {
 public:
  explicit Outbox(Endpoint& below) : below_(below), limit_(below.traits().max_in_flight) {}
  void add(const Write& w) { waiting_.push_back(w); }
  Status flush();
  void ended() { --num_in_flight_; }
  bool is_empty() const { return waiting_.empty() && num_in_flight_ == 0; }
  void drop_waiting() { waiting_.clear(); }

 private:
  Endpoint& below_;
  const uint32_t limit_;
  std::deque<Write> waiting_;
  uint32_t num_in_flight_ = 0;
};

/// From the heap into the peers' slots.
class StagedSender {
 public:
  StagedSender(const StagedConfig& config, SymmetricHeap& heap, StagedSlots& slots, Outbox& outbox,
               std::unique_ptr<CopyChannel> channel);
  void write(const Write& w);
  Status progress();
  /// A piece was delivered, or not. `id` is of the write below.
  void delivered(uint64_t id, bool succeeded);
  void credited(uint32_t peer, uint32_t slot, bool is_placed);
  /// What was and will be begun towards the peer fails.
  void break_peer(uint32_t peer, const std::string& why);
  /// Tells receivers to forget what they have not placed.
  void abandon();
  Result<bool> settled() { return channel_->done(last_mark_); }
  bool is_idle() const { return num_flights_ == 0; }
  std::deque<Event>& events() { return events_; }
  /// Why a write failed last; empty if none did.
  const std::string& last_error() const { return last_error_; }

 private:
  struct Flight {
    Write write;
    uint64_t number = 0;
    uint64_t next = 0;  // bytes that slots have taken
    uint32_t num_pieces = 0;
    uint32_t num_begun = 0;
    uint32_t num_left = 0;  // without credit
    bool failed = false;
  };
  struct Slot {
    std::shared_ptr<Flight> flight;  // null: free
    uint64_t bytes = 0;
    bool is_delivered = false;
    bool is_credited = false;
  };
  struct Lane {
    std::deque<std::shared_ptr<Flight>> waiting;
    std::vector<Slot> slots;
    uint64_t num_writes = 0;
    uint64_t heard_ns = 0;  // when something of this peer was told last
    bool is_broken = false;
  };
  struct Copy {
    uint32_t peer, slot;
    uint64_t mark;
  };
  void break_silent_peers();
  Status fill(uint32_t peer, uint32_t slot_idx);
  void send(uint32_t peer, uint32_t slot_idx);
  void free_slot(uint32_t peer, uint32_t slot_idx);
  void end_piece(Flight& flight, bool succeeded);

  const StagedConfig config_;
  SymmetricHeap& heap_;
  StagedSlots& slots_;
  Outbox& outbox_;
  const std::unique_ptr<CopyChannel> channel_;
  uint64_t last_mark_ = 0;
  std::vector<Lane> lanes_;  // by peer
  std::deque<Copy> copying_;
  uint64_t num_flights_ = 0;
  uint32_t num_passes_ = 0;
  std::deque<Event> events_;
  std::string last_error_;
};

/// From this rank's slots into its heap.
class StagedReceiver {
 public:
  StagedReceiver(const StagedConfig& config, SymmetricHeap& heap, StagedSlots& slots,
                 Outbox& outbox, std::unique_ptr<CopyChannel> channel);
  Status arrived(uint32_t peer, uint32_t slot);
  Status progress(std::deque<Event>& events);
  Result<bool> settled() { return channel_->done(last_mark_); }

 private:
  struct Copy {
    uint32_t peer, slot;
    PieceHeader header;
    uint64_t mark;
  };
  Result<bool> place(const PieceHeader& header, const char* bytes);
  void give_credit(uint32_t peer, uint32_t slot, Notice::Kind kind);

  const StagedConfig config_;
  SymmetricHeap& heap_;
  StagedSlots& slots_;
  Outbox& outbox_;
  const std::unique_ptr<CopyChannel> channel_;
  uint64_t last_mark_ = 0;
  std::deque<Copy> copying_;
  // Of writes that are there in part, by peer and number: the pieces that are to come.
  std::map<std::pair<uint32_t, uint64_t>, uint32_t> num_to_come_;
};

}  // namespace mkernel
