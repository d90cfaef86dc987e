#include "network/loopback.h"

#include <algorithm>
#include <array>
#include <atomic>
#include <deque>
#include <mutex>
#include <optional>
#include <random>
#include <sstream>
#include <string>
#include <thread>
#include <utility>

#include "core/sync.h"
#include "core/watchdog.h"
#include "memory/heap_address.h"

namespace mkernel {
namespace {

constexpr double kMaxDelayUs = 1e12;                // these two keep times in 64-bit
constexpr double kMinGbs = 1e-6;                    // nanoseconds
constexpr size_t kMaxRanks = 1 << 16;               // ranks are named with 16 bits
constexpr uint64_t kCloseLimitNs = 10'000'000'000;  // for copies that a device has begun
constexpr size_t kMaxPieces = 4;                    // of a reordered write

/// Immediates on their way to one rank. Writers: all endpoints; reader: the rank's endpoint.
struct Inbox {
  std::mutex mutex;
  std::deque<Event> events;
};

/// What the endpoints of one fabric share.
struct Fabric {
  Fabric(const LoopbackConfig& c, std::vector<const HeapView*> heap_of_rank, bool in_one_process)
      : config(c),
        heaps(std::move(heap_of_rank)),
        has_immediates(in_one_process),
        inboxes(heaps.size()) {}

  const LoopbackConfig config;
  const std::vector<const HeapView*> heaps;
  const bool has_immediates;
  std::vector<Inbox> inboxes;
  int64_t num_posted = 0;  // writes; all endpoints add (sys, relaxed)
};

struct Piece {
  uint64_t begin, end;  // bytes of the write
};

/// A write that is posted and not placed yet.
struct Flight {
  Write write;
  uint64_t due_ns;
  bool fails;
  std::array<Piece, kMaxPieces> pieces;
  size_t num_pieces;  // still to be placed
};

/// A write that was handed to the copy channel, or failed.
struct Placed {
  Write write;
  bool failed;
  uint64_t mark;
};

struct Link {
  std::deque<Flight> flights;  // in order of due time
  uint64_t free_ns = 0;        // when the last write has left
  uint64_t num_posted = 0;     // writes
  bool broken = false;
  std::optional<Event> last_immediate;
};

uint64_t ns_of_us(double us) { return static_cast<uint64_t>(us * 1e3); }

class LoopbackEndpoint final : public Endpoint {
 public:
  LoopbackEndpoint(std::shared_ptr<Fabric> fabric, uint32_t rank,
                   std::unique_ptr<CopyChannel> channel)
      : fabric_(std::move(fabric)),
        options_(fabric_->config.link),
        in_order_(options_.order == LinkOrder::kInOrder),
        rank_(rank),
        stalls_(std::ranges::count(options_.stalled_ranks, static_cast<int>(rank)) > 0),
        channel_(std::move(channel)),
        links_(fabric_->heaps.size()),
        random_(options_.seed * 0x9e3779b97f4a7c15u + rank) {}

  ~LoopbackEndpoint() override { (void)close(); }
  LoopbackEndpoint(const LoopbackEndpoint&) = delete;
  LoopbackEndpoint& operator=(const LoopbackEndpoint&) = delete;

  LinkTraits traits() const override {
    return {.in_order = in_order_,
            .immediate_bits = fabric_->has_immediates ? 32u : 0u,
            .max_in_flight = fabric_->config.max_in_flight};
  }

  // The fabric knows all heaps already, and with them all regions.
  std::string address() const override { return "loopback"; }
  Status connect(std::span<const std::string>) override { return Status::ok(); }
  Result<std::string> export_region(const HeapRegion&) override { return std::string(); }
  Status import_region(uint32_t, uint64_t, uint64_t, const std::string&) override {
    return Status::ok();
  }
  void forget_region(uint64_t) override {}

  Status post(std::span<const Write> writes) override {
    MK_RETURN_IF_ERROR(check_caller());
    const uint32_t max_in_flight = fabric_->config.max_in_flight;
    if (writes.size() > max_in_flight - in_flight_) {
      return error(Code::kUnavailable, std::to_string(writes.size()) + " writes beside " +
                                           std::to_string(in_flight_) + " in flight: at most " +
                                           std::to_string(max_in_flight));
    }
    for (const Write& w : writes) MK_RETURN_IF_ERROR(check_write(w));
    if (writes.empty()) return Status::ok();

    const uint64_t now_ns = Watchdog::now_ns();
    if (stalls_ && in_flight_ == 0) stalled_until_ns_ = now_ns + ns_of_us(options_.stall_us);
    for (const Write& w : writes) take_off(w, now_ns);
    in_flight_ += static_cast<uint32_t>(writes.size());
    return Status::ok();
  }

  Result<size_t> poll(std::span<Event> events) override {
    MK_RETURN_IF_ERROR(check_caller());
    const uint64_t now_ns = Watchdog::now_ns();
    if (now_ns < stalled_until_ns_) return size_t{0};
    for (Link& link : links_) MK_RETURN_IF_ERROR(place_due(link, now_ns));
    size_t count = 0;
    while (count < events.size() && !placed_.empty()) {
      const Placed& placed = placed_.front();
      if (!placed.failed) {
        Result<bool> done = channel_->done(placed.mark);
        if (!done) return done.status();
        if (!*done) break;
      }
      events[count++] = land(placed);
      placed_.pop_front();
    }
    return count + receive(events.subspan(count));
  }

  Status close() override {
    if (closed_) return Status::ok();
    closed_ = true;
    in_flight_ = 0;
    for (Link& link : links_) link.flights.clear();
    placed_.clear();
    Result<uint64_t> mark = channel_->mark();
    if (!mark) return mark.status();
    const uint64_t start_ns = Watchdog::now_ns();
    for (;;) {
      Result<bool> done = channel_->done(*mark);
      if (!done) return done.status();
      if (*done) return Status::ok();
      if (Watchdog::now_ns() - start_ns > kCloseLimitNs) {
        return error(Code::kTimeout, "close: copies did not end in 10 s");
      }
      std::this_thread::yield();
    }
  }

 private:
  Status error(Code code, const std::string& message) const {
    return {code, "loopback endpoint of rank " + std::to_string(rank_) + ": " + message};
  }

  /// Holds the caller to the contract: open, and one thread.
  Status check_caller() {
    if (closed_) return error(Code::kUnavailable, "it is closed");
    const std::thread::id caller = std::this_thread::get_id();
    std::thread::id owner = owner_.load(std::memory_order_relaxed);
    if (owner == caller) return Status::ok();
    if (owner == std::thread::id() &&
        owner_.compare_exchange_strong(owner, caller, std::memory_order_relaxed))
      return Status::ok();
    return error(Code::kInvalidArgument, "used by a second thread");
  }

  Status check_write(const Write& w) const {
    if (w.peer >= links_.size() || w.peer == rank_ || fabric_->heaps[w.peer] == nullptr) {
      return error(Code::kInvalidArgument, "no route to rank " + std::to_string(w.peer));
    }
    if (w.kind == Write::Kind::kDataImmediate && !fabric_->has_immediates)
      return error(Code::kInvalidArgument, "no immediates between processes");
    if (w.kind == Write::Kind::kFlag) {
      if (w.flag < kMaxFlags) return Status::ok();
      return error(Code::kInvalidArgument, "flag " + std::to_string(w.flag) + " of rank " +
                                               std::to_string(w.peer) + ": below " +
                                               std::to_string(kMaxFlags));
    }
    if (w.bytes == 0 || (source_of(w) != nullptr && target_of(w) != nullptr)) return Status::ok();
    return error(Code::kInvalidArgument, std::to_string(w.bytes) + " bytes from address " +
                                             std::to_string(w.local_address) + " to address " +
                                             std::to_string(w.remote_address) + " of rank " +
                                             std::to_string(w.peer) + ": outside of " +
                                             (source_of(w) == nullptr ? "its own" : "the peer's") +
                                             " heap");
  }

  const char* source_of(const Write& w) const {
    return fabric_->heaps[rank_]->resolve(w.local_address, w.bytes);
  }
  char* target_of(const Write& w) const {
    return fabric_->heaps[w.peer]->resolve(w.remote_address, w.bytes);
  }

  void take_off(const Write& w, uint64_t now_ns) {
    Link& link = links_[w.peer];
    const uint64_t number_of_bytes = w.kind == Write::Kind::kFlag ? sizeof(uint32_t) : w.bytes;
    link.free_ns = std::max(now_ns, link.free_ns);
    if (options_.link_gbs > 0) {  // 1e9 bytes/s are bytes per ns
      link.free_ns +=
          static_cast<uint64_t>(static_cast<double>(number_of_bytes) / options_.link_gbs);
    }
    Flight flight{
        .write = w,
        .due_ns = link.free_ns + ns_of_us(options_.link_us),
        .fails = add_relaxed<Scope::kSys>(&fabric_->num_posted, int64_t{1}) == options_.fail_after,
        .pieces = {{{0, w.bytes}}},
        .num_pieces = 1};
    if (!in_order_ && w.kind != Write::Kind::kFlag) cut(flight);
    if (!in_order_ && link.num_posted++ % 3 == 0) flight.due_ns += ns_of_us(options_.late_us);
    const auto later = [](uint64_t due_ns, const Flight& f) { return due_ns < f.due_ns; };
    link.flights.insert(
        std::upper_bound(link.flights.begin(), link.flights.end(), flight.due_ns, later), flight);
  }

  void cut(Flight& flight) {
    std::array<uint64_t, kMaxPieces + 1> cuts{};
    for (uint64_t& c : cuts) c = random_() % (flight.write.bytes + 1);
    cuts.front() = 0;
    cuts.back() = flight.write.bytes;
    std::ranges::sort(cuts);
    flight.num_pieces = kMaxPieces;
    for (size_t i = 0; i < kMaxPieces; ++i) flight.pieces[i] = {cuts[i], cuts[i + 1]};
  }

  Status place_due(Link& link, uint64_t now_ns) {
    const auto is_due = [now_ns](const Flight& f) { return f.due_ns <= now_ns; };
    auto num_due =
        static_cast<size_t>(std::ranges::find_if_not(link.flights, is_due) - link.flights.begin());
    if (in_order_) {
      for (; num_due > 0; --num_due) {
        MK_RETURN_IF_ERROR(place_piece(link, 0, 0));
      }
      return Status::ok();
    }
    // Some steps only: what is left may still be overtaken by what is posted later.
    for (uint64_t steps = random_() % (num_due * kMaxPieces + 1); steps > 0 && num_due > 0;
         --steps) {
      const size_t i = random_() % num_due;
      const size_t num_flights = link.flights.size();
      MK_RETURN_IF_ERROR(place_piece(link, i, random_() % link.flights[i].num_pieces));
      if (link.flights.size() < num_flights) --num_due;
    }
    return Status::ok();
  }

  /// Places one piece of the i-th flight; with the last piece the flight has ended.
  Status place_piece(Link& link, size_t i, size_t piece_idx) {
    Flight& flight = link.flights[i];
    const Write& w = flight.write;
    const char* source = nullptr;
    char* target = nullptr;
    if (w.kind != Write::Kind::kFlag && w.bytes > 0) {
      source = source_of(w);
      target = target_of(w);
      flight.fails |= source == nullptr || target == nullptr;  // its plan went meanwhile
    }
    link.broken |= flight.fails;
    uint64_t mark = 0;
    if (!link.broken) {
      if (w.kind == Write::Kind::kFlag) {
        MK_RETURN_IF_ERROR(channel_->store_flag(fabric_->heaps[w.peer]->flag(w.flag), w.value));
      } else {
        const Piece piece = flight.pieces[piece_idx];
        if (piece.begin < piece.end) {
          MK_RETURN_IF_ERROR(
              channel_->copy(target + piece.begin, source + piece.begin, piece.end - piece.begin));
        }
        flight.pieces[piece_idx] = flight.pieces[--flight.num_pieces];
        if (flight.num_pieces > 0) return Status::ok();
      }
      Result<uint64_t> marked = channel_->mark();
      if (!marked) return marked.status();
      mark = *marked;
    }
    placed_.push_back({w, link.broken, mark});
    link.flights.erase(link.flights.begin() + static_cast<std::ptrdiff_t>(i));
    return Status::ok();
  }

  /// The completion of a write, whose immediate shows at the peer now.
  Event land(const Placed& placed) {
    const Write& w = placed.write;
    --in_flight_;
    if (placed.failed) return {.kind = Event::Kind::kFailed, .peer = w.peer, .id = w.id};
    if (w.kind == Write::Kind::kDataImmediate) {
      const Event arrived{.kind = Event::Kind::kArrived, .peer = rank_, .value = w.value};
      Inbox& inbox = fabric_->inboxes[w.peer];
      const std::lock_guard lock(inbox.mutex);
      inbox.events.push_back(arrived);
      std::optional<Event>& last = links_[w.peer].last_immediate;
      if (fabric_->config.repeat_immediates && last) inbox.events.push_back(*last);
      last = arrived;
    }
    return {.kind = Event::Kind::kCompleted, .peer = w.peer, .id = w.id};
  }

  size_t receive(std::span<Event> events) {
    Inbox& inbox = fabric_->inboxes[rank_];
    const std::lock_guard lock(inbox.mutex);
    const size_t count = std::min(events.size(), inbox.events.size());
    if (count == 0) return 0;
    const auto end = inbox.events.begin() + static_cast<std::ptrdiff_t>(count);
    std::copy(inbox.events.begin(), end, events.begin());
    inbox.events.erase(inbox.events.begin(), end);
    return count;
  }

  const std::shared_ptr<Fabric> fabric_;
  const LoopbackOptions& options_;
  const bool in_order_;
  const uint32_t rank_;
  const bool stalls_;
  const std::unique_ptr<CopyChannel> channel_;
  std::atomic<std::thread::id> owner_{};  // the first caller of post or poll
  std::vector<Link> links_;               // by peer
  std::deque<Placed> placed_;             // in the order of the channel
  uint32_t in_flight_ = 0;
  uint64_t stalled_until_ns_ = 0;
  bool closed_ = false;
  std::mt19937_64 random_;
};

}  // namespace

Status check_loopback(const LoopbackConfig& config, size_t num_ranks) {
  const LoopbackOptions& link = config.link;
  const auto refuse = [](const std::string& what) {
    return Status(Code::kInvalidArgument, "loopback: " + what);
  };
  if (num_ranks == 0 || num_ranks > kMaxRanks) {
    return refuse(std::to_string(num_ranks) + " ranks: 1 to 65536");
  }
  if (config.max_in_flight == 0) return refuse("max_in_flight = 0: at least 1");
  if (link.link_gbs != 0 && !(link.link_gbs >= kMinGbs)) {
    return refuse("link_gbs = " + std::to_string(link.link_gbs) + ": 0, or at least 1e-6");
  }
  for (const auto& [name, us] :
       {std::pair{"link_us", link.link_us}, std::pair{"stall_us", link.stall_us},
        std::pair{"late_us", link.late_us}}) {
    if (us >= 0 && us <= kMaxDelayUs) continue;
    std::ostringstream value;  // std::to_string would spell 1e300 out
    value << us;
    return refuse(std::string(name) + " = " + value.str() + ": 0 to 1e12");
  }
  for (const int rank : link.stalled_ranks) {
    if (rank >= 0 && static_cast<size_t>(rank) < num_ranks) continue;
    return refuse("stalled_ranks: no rank " + std::to_string(rank));
  }
  return Status::ok();
}

Result<std::vector<std::unique_ptr<Endpoint>>> create_loopback(
    const LoopbackConfig& config, std::span<SymmetricHeap* const> heap_of_rank) {
  MK_RETURN_IF_ERROR(check_loopback(config, heap_of_rank.size()));
  const auto fabric = std::make_shared<Fabric>(
      config, std::vector<const HeapView*>(heap_of_rank.begin(), heap_of_rank.end()), true);
  std::vector<std::unique_ptr<Endpoint>> endpoints;
  for (uint32_t rank = 0; rank < heap_of_rank.size(); ++rank) {
    Result<std::unique_ptr<CopyChannel>> channel = heap_of_rank[rank]->memory().create_channel();
    if (!channel) return channel.status();
    endpoints.push_back(std::make_unique<LoopbackEndpoint>(fabric, rank, std::move(*channel)));
  }
  return endpoints;
}

Result<std::unique_ptr<Endpoint>> create_loopback_between_processes(
    const LoopbackConfig& config, SymmetricHeap& own, uint32_t rank,
    std::span<const HeapView* const> heap_of_rank) {
  MK_RETURN_IF_ERROR(check_loopback(config, heap_of_rank.size()));
  if (config.link.order != LinkOrder::kInOrder)
    return Status(Code::kUnsupported,
                  "loopback: order = reordered: between processes links keep order");
  const auto fabric = std::make_shared<Fabric>(
      config, std::vector<const HeapView*>(heap_of_rank.begin(), heap_of_rank.end()), false);
  Result<std::unique_ptr<CopyChannel>> channel = own.memory().create_channel();
  if (!channel) return channel.status();
  return std::unique_ptr<Endpoint>(
      std::make_unique<LoopbackEndpoint>(fabric, rank, std::move(*channel)));
}

}  // namespace mkernel
