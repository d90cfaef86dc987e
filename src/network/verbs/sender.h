// From writes to requests on queue pairs, and from their completions back to events.
//
// A large write is split over all routes to its peer (rails, and queue pairs of a rail); small ones
// take turns. What follows for the order that is promised:
//  1. An immediate comes with the write if that is one request, or if all its parts are on one
//  queue
//     pair that keeps order. Else it is a request of its own, posted when all parts are complete.
//  2. A flag over links that keep order comes after everything posted to its peer before it. A
//     queue pair orders only itself. So the flag is held until what is not complete lies on one
//     route at most, and takes that route. With one queue pair per peer nothing is ever held.
//  3. Over links without order a flag is a write like any other (arrival.h asks for none there).
//
// A failed request breaks its peer: what was not posted to it fails, and so does all that follows.
#pragma once
#include <cstdint>
#include <deque>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include <mkernel/status.h>

#include "network/transport.h"
#include "network/verbs/lane.h"
#include "network/verbs/regions.h"

namespace mkernel::verbs {

/// One queue pair by which a peer is reached.
struct Route {
  uint32_t lane = 0;
  const AddressHandle* handle = nullptr;
  uint32_t remote_number = 0;
  uint32_t remote_qkey = 0;
  uint64_t num_added = 0;     // requests ever given to the lane
  uint64_t num_complete = 0;  // of these
};

struct SenderConfig {
  bool in_order = true;
  uint64_t split_bytes = 0;
  uint64_t max_write_bytes = 0;
  uint32_t max_in_flight = 0;
};

/// Threads: one.
class Sender {
 public:
  Sender(const SenderConfig& config, uint32_t num_peers);

  std::vector<std::unique_ptr<Lane>>& lanes() { return lanes_; }
  std::vector<Route>& routes(uint32_t peer) { return peers_[peer].routes; }
  const std::vector<Route>& routes(uint32_t peer) const { return peers_[peer].routes; }

  /// Where a request without bytes pretends to read and write: NICs may check the keys even so.
  void set_nowhere(uint32_t peer, const Location& source, const Location& target);

  /// Takes a write to a peer with routes. Flags and writes without bytes need no source.
  void write(const Write& w, const Location& source, const Location& target);
  /// Posts what there is room for, on all lanes.
  Status flush();
  void complete(const Completion& completion);

  uint32_t num_posted() const;  // requests that are not complete
  size_t num_events() const { return events_.size(); }
  void arrived(uint32_t peer, uint32_t immediate);
  /// Writes that were taken and whose event was not; at most max_in_flight are allowed.
  uint32_t num_in_flight() const { return num_in_flight_; }
  /// Takes the oldest event.
  Event take_event();
  /// The first thing that went wrong; empty if nothing did.
  const std::string& failure() const { return failure_; }

 private:
  struct Flight {
    uint64_t id = 0;
    uint32_t peer = 0;
    uint32_t num_parts = 0;  // not complete
    bool failed = false;
    std::optional<uint32_t> immediate = {};  // to be sent when all parts are complete
  };
  struct HeldFlag {
    uint32_t flight = 0;
    uint32_t value = 0;
    Location target = {};
    std::vector<uint64_t> marks = {};  // by route: requests that come before it
  };
  struct Peer {
    std::vector<Route> routes = {};
    uint32_t next_route = 0;
    bool is_broken = false;
    Location no_source, no_target;
    std::deque<HeldFlag> held = {};
  };
  struct Part {
    uint64_t offset = 0;
    uint64_t bytes = 0;
    std::optional<uint32_t> immediate = {};
    std::optional<uint32_t> flag = {};
  };

  void write_data(uint32_t flight, const Write& w, const Location& source, const Location& target);
  void write_flag(uint32_t flight, const Write& w, const Location& target);
  void add(uint32_t flight, uint32_t route_idx, const Part& part, const Location& source,
           const Location& target);
  void release_flags(Peer& peer);
  void end_part(uint32_t flight_idx, bool succeeded);
  void break_peer(uint32_t peer_idx);

  const SenderConfig config_;
  std::vector<std::unique_ptr<Lane>> lanes_;
  std::vector<Peer> peers_;
  std::vector<Flight> flights_;
  std::vector<uint32_t> free_;  // of flights_
  uint32_t num_in_flight_ = 0;
  std::vector<uint32_t> waiting_;  // lanes with requests that are not posted
  std::vector<Request> ended_;     // of one completion
  std::deque<Event> events_;
  std::string failure_;
};

}  // namespace mkernel::verbs
