// The contract between the proxy and a network. One Endpoint per rank; writes go from a rank's
// heap into a peer's heap, and the peer learns of each write on its own.
// What a link keeps in order is declared here (LinkTraits); what follows from it for telling
// arrival is decided in arrival.h, and nowhere else.
#pragma once
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>

#include <mkernel/status.h>

#include "memory/symmetric_heap.h"

namespace mkernel {

/// What a link promises.
struct LinkTraits {
  bool in_order = false;        // a flag is placed after all that was posted to its peer before it
  uint32_t immediate_bits = 0;  // bits that a write can carry to the receiver's poll; 0: none
  uint32_t max_in_flight = 0;   // writes per endpoint; more are refused by post()
};

/// One write into a peer's heap. Bytes are named by heap addresses (memory/heap_address.h).
struct Write {
  enum class Kind : uint8_t {
    kData,           // bytes only
    kDataImmediate,  // bytes (may be 0), then `value` shows up in the peer's poll()
    kFlag,           // `value` is stored into word `flag` of the peer's flag region
  };
  Kind kind = Kind::kData;
  uint32_t peer = 0;
  uint64_t local_address = 0;   // address in this rank's heap
  uint64_t remote_address = 0;  // address in the peer's heap
  uint64_t bytes = 0;
  uint32_t flag = 0;
  uint32_t value = 0;
  uint64_t id = 0;  // comes back in the completion
};

/// What poll() reports.
struct Event {
  enum class Kind : uint8_t {
    kCompleted,  // write `id` is placed at the peer; its source may be reused
    kFailed,     // write `id` failed; nothing may be concluded about the peer's memory
    kArrived,    // `peer`'s write carried the immediate `value`; its bytes are in place
  };
  Kind kind = Kind::kCompleted;
  uint32_t peer = 0;
  uint32_t value = 0;
  uint64_t id = 0;
};

/// One rank's end of the network. Its life: created for a rank's heap, whose flag region it makes
/// known to the network; address() goes to all ranks, connect() takes theirs; then every region
/// that a write is to touch is exported by its owner and imported by the others. Who carries
/// addresses and keys between ranks is the caller's matter.
///
/// Threads: one thread, the rank's proxy, calls post and poll; a second one is refused with
/// invalid_argument. Regions may come and go on another thread meanwhile. The heaps of all ranks
/// must live until the endpoints of all ranks are closed.
class Endpoint {
 public:
  virtual ~Endpoint() = default;
  virtual LinkTraits traits() const = 0;

  /// How peers reach this endpoint and its flags: bytes that only the same transport reads.
  virtual std::string address() const = 0;
  /// Takes the addresses of ranks 0, 1, ...; an empty one is a rank that is never written to.
  /// Once, before the first post.
  /// Errors: invalid_argument for an address of another transport or version; unavailable, naming
  /// the rank, if it cannot be reached.
  virtual Status connect(std::span<const std::string> address_of_rank) = 0;

  /// Makes a region of this rank's heap a source and a target of writes. Returns its key: bytes
  /// that peers need to write there.
  virtual Result<std::string> export_region(const HeapRegion& region) = 0;
  /// The region of `bytes` that `peer` has at this heap address.
  virtual Status import_region(uint32_t peer, uint64_t address, uint64_t bytes,
                               const std::string& key) = 0;
  /// Forgets a region, the own one and all peers' at this heap address. No write may be on its way
  /// there or from there.
  virtual void forget_region(uint64_t address) = 0;

  /// Posts all writes, or none.
  /// Errors: invalid_argument if a range, peer or flag is out of bounds; unavailable if more than
  /// max_in_flight would be in flight, or after close().
  virtual Status post(std::span<const Write> writes) = 0;

  /// Makes progress and fills in up to events.size() events; returns how many. A write is in
  /// flight until its completion was reported here.
  virtual Result<size_t> poll(std::span<Event> events) = 0;

  /// What the network said of the last write that failed; empty if it said nothing. Threads: the
  /// one that polls.
  virtual std::string last_error() const { return {}; }

  /// Waits for, or destroys, all posted writes: afterwards none touches any heap.
  virtual Status close() = 0;
};

}  // namespace mkernel
