// The receiving half of staging (staging.h): from this rank's slots into its heap, and credit back.
#pragma once
#include <deque>
#include <memory>
#include <optional>
#include <unordered_map>
#include <vector>

#include "memory/symmetric_heap.h"
#include "network/libfabric/path.h"
#include "network/libfabric/pinned.h"
#include "network/libfabric/staging_format.h"

namespace mkernel::libfabric {

/// Marks transfers of credit; slots are numbered below.
inline constexpr uint32_t kCreditOwner = 1u << kSlotBits;

/// Threads: one.
class Landing {
 public:
  static Result<std::unique_ptr<Landing>> create(Wire& wire, Port& port, SymmetricHeap& heap,
                                                 std::deque<Event>& events,
                                                 const StagingConfig& config);

  /// The slots of all peers for pieces to this rank.
  const RemoteMemory& slots() const { return buffers_->registration().remote; }
  /// Any memory of the peer, for credit, which carries no bytes.
  void connect(uint32_t peer, const RemoteMemory& memory) { lanes_[peer].peer_memory = memory; }
  /// A piece has come.
  /// Errors: peer_failed if it is of no rank or slot; what copying returns.
  Status handle_notice(const Notice& notice);
  Status progress();
  bool idle() const { return copying_.empty(); }
  void unregister() { buffers_->unregister(); }
  Result<bool> settled();

 private:
  struct Lane {
    std::optional<RemoteMemory> peer_memory;  // none if the peer is not known
    // Of writes that have come in part, by number: how many pieces are to come.
    std::unordered_map<uint64_t, uint32_t> pieces_left;
  };
  struct Copy {
    Notice notice;
    PieceHeader header;
    uint64_t mark;
  };

  Landing(Wire& wire, SymmetricHeap& heap, std::deque<Event>& events, const StagingConfig& config);
  /// False if there is no place for it.
  Result<bool> copy_up(const PieceHeader& header, const char* bytes);
  void land(const Copy& copy);
  void give_credit(const Notice& piece, Notice::Kind kind);

  Wire& wire_;
  SymmetricHeap& heap_;
  std::deque<Event>& events_;
  const StagingConfig config_;
  std::unique_ptr<CopyChannel> channel_;
  std::unique_ptr<PinnedMemory> buffers_;
  std::vector<Lane> lanes_;   // by peer
  std::deque<Copy> copying_;  // in the order of the channel
};

}  // namespace mkernel::libfabric
