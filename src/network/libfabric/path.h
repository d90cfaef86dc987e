// How the bytes of a write travel: straight from heap to heap (direct.h), or through bounce buffers
// (staging.h). The endpoint has checked the write; a path reports it once, as completed or failed.
// Threads: one.
#pragma once
#include <cstdint>
#include <deque>
#include <span>
#include <string>

#include <mkernel/status.h>

#include "network/libfabric/messages.h"
#include "network/libfabric/regions.h"
#include "network/libfabric/wire.h"
#include "network/transport.h"

namespace mkernel::libfabric {

struct CheckedWrite {
  Write write;
  Source source;  // null, with no bytes and for a flag
  Target target;  // the same; with staging it names nothing
};

class Path {
 public:
  virtual ~Path() = default;
  /// Fills in what peers must know of this path.
  virtual void describe(EndpointAddress& address) const = 0;
  /// A peer's description; the endpoint has seen that it has the same kind of path.
  virtual Status connect(const EndpointAddress& peer) = 0;
  virtual void begin(const CheckedWrite& write) = 0;
  virtual Status handle(const WireEvent& event) = 0;
  /// What needs no event of the wire.
  virtual Status progress() = 0;
  /// Whether nothing is under way: no write, and nothing that a peer waits for.
  virtual bool idle() const = 0;
  /// Takes all memory back from the provider.
  virtual void unregister() = 0;
  /// Whether nothing reads or writes the heap any more, once the wire is gone.
  virtual Result<bool> settled() = 0;

  /// To be reported by poll().
  std::deque<Event> events;

 protected:
  void report(Event::Kind kind, const Write& write) {
    events.push_back({.kind = kind, .peer = write.peer, .id = write.id});
  }
};

}  // namespace mkernel::libfabric
