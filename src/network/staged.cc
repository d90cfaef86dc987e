#include "network/staged.h"

#include <algorithm>
#include <array>
#include <mutex>
#include <string_view>
#include <thread>

#include "core/watchdog.h"
#include "memory/heap_address.h"
#include "network/staged_endpoint.h"

namespace mkernel {
namespace {

constexpr std::string_view kMagic = "mkernel-staged-1";
constexpr uint64_t kQuietNs = 200'000'000;  // a peer that says nothing for so long has closed

/// An address: what both ends must agree on, then the region's key and the address below, each with
/// its length.
void append(std::string& bytes, uint64_t n) {
  bytes.append(reinterpret_cast<const char*>(&n), sizeof n);
}
uint64_t take_number(std::string_view& bytes) {
  uint64_t n = 0;
  if (bytes.size() < sizeof n) return ~uint64_t{0};
  std::copy_n(bytes.data(), sizeof n, reinterpret_cast<char*>(&n));
  bytes.remove_prefix(sizeof n);
  return n;
}

class StagedEndpoint final : public Endpoint {
 public:
  static Result<std::unique_ptr<Endpoint>> create(const StagedConfig& config, SymmetricHeap& heap,
                                                  const MakeBelow& make_below) {
    if (config.slots == 0 || config.slots > 1u << kSlotBits || config.num_ranks > 1u << kRankBits) {
      return Status(Code::kInvalidArgument, "staged: " + std::to_string(config.slots) + " slots, " +
                                                std::to_string(config.num_ranks) +
                                                " ranks: 1 to 16384, and up to 65536");
    }
    Result<std::unique_ptr<StagedSlots>> slots = StagedSlots::create(heap.memory(), config);
    if (!slots) return slots.status();
    Result<std::unique_ptr<Endpoint>> below = make_below((*slots)->heap());
    if (!below) return below.status();
    if ((*below)->traits().immediate_bits < 32) {
      return Status(Code::kUnsupported, "staged: the network has immediates of " +
                                            std::to_string((*below)->traits().immediate_bits) +
                                            " bits: 32 are needed");
    }
    Result<std::string> key = (*below)->export_region((*slots)->region());
    if (!key) return key.status();
    std::array<std::unique_ptr<CopyChannel>, 2> channels;
    for (auto& channel : channels) {
      Result<std::unique_ptr<CopyChannel>> created = heap.memory().create_channel();
      if (!created) return created.status();
      channel = std::move(*created);
    }
    return std::unique_ptr<Endpoint>(new StagedEndpoint(
        config, heap, std::move(*slots), std::move(*below), *key, std::move(channels)));
  }
  ~StagedEndpoint() override { (void)close(); }
  StagedEndpoint(const StagedEndpoint&) = delete;
  StagedEndpoint& operator=(const StagedEndpoint&) = delete;

  LinkTraits traits() const override {
    return {.in_order = false, .immediate_bits = 32, .max_in_flight = config_.max_in_flight};
  }

  std::string address() const override {
    std::string bytes(kMagic);
    const std::string below = below_->address();
    for (const uint64_t n : {uint64_t{config_.slots}, config_.piece_bytes, key_.size()}) {
      append(bytes, n);
    }
    return bytes + key_ + below;
  }

  Status connect(std::span<const std::string> address_of_rank) override {
    std::vector<std::string> keys(address_of_rank.size()), below(address_of_rank.size());
    for (uint32_t rank = 0; rank < address_of_rank.size(); ++rank) {
      if (address_of_rank[rank].empty()) continue;
      MK_RETURN_IF_ERROR(split_address(rank, address_of_rank[rank], &keys[rank], &below[rank]));
    }
    MK_RETURN_IF_ERROR(below_->connect(below));
    is_peer_.resize(config_.num_ranks);
    for (uint32_t rank = 0; rank < keys.size() && rank < config_.num_ranks; ++rank) {
      if (keys[rank].empty() || rank == config_.rank) continue;
      const HeapRegion& region = slots_->region();  // the same on all ranks
      MK_RETURN_IF_ERROR(below_->import_region(rank, region.address, region.bytes, keys[rank]));
      is_peer_[rank] = true;
    }
    return Status::ok();
  }

  // The heap's own bounds are the source's; only the peers' have to be known.
  Result<std::string> export_region(const HeapRegion&) override { return std::string("staged"); }
  Status import_region(uint32_t peer, uint64_t address, uint64_t bytes,
                       const std::string&) override {
    const std::lock_guard lock(mutex_);
    bytes_of_region_[{region_of(address), peer}] = bytes;
    return Status::ok();
  }
  void forget_region(uint64_t address) override {
    const std::lock_guard lock(mutex_);
    bytes_of_region_.erase(bytes_of_region_.lower_bound({region_of(address), 0}),
                           bytes_of_region_.upper_bound({region_of(address), UINT32_MAX}));
  }

  Status post(std::span<const Write> writes) override {
    MK_RETURN_IF_ERROR(check_caller());
    if (writes.size() > config_.max_in_flight - num_in_flight_) {
      return error(Code::kUnavailable, std::to_string(writes.size()) + " writes beside " +
                                           std::to_string(num_in_flight_) + " in flight: at most " +
                                           std::to_string(config_.max_in_flight));
    }
    for (const Write& w : writes) MK_RETURN_IF_ERROR(check_write(w));
    for (const Write& w : writes) sender_.write(w);
    num_in_flight_ += static_cast<uint32_t>(writes.size());
    return progress();
  }

  Result<size_t> poll(std::span<Event> events) override {
    MK_RETURN_IF_ERROR(check_caller());
    if (sender_.events().size() < events.size()) {
      Result<size_t> count = poll_below();
      if (!count) return count.status();
      MK_RETURN_IF_ERROR(progress());
    }
    size_t count = 0;
    for (; count < events.size() && !sender_.events().empty(); ++count) {
      events[count] = sender_.events().front();
      sender_.events().pop_front();
      if (events[count].kind != Event::Kind::kArrived) --num_in_flight_;
    }
    return count;
  }

  EndpointStatistics statistics() const override { return below_->statistics(); }
  std::string last_error() const override { return sender_.last_error(); }

  Status close() override {
    if (std::exchange(is_closed_, true)) return Status::ok();
    const uint64_t start_ns = Watchdog::now_ns();
    (void)drain(start_ns, [this] { return sender_.is_idle() && outbox_.is_empty(); });
    // What was delivered and not placed is taken back. Receivers that are gone need not hear it.
    outbox_.drop_waiting();
    sender_.abandon();
    (void)drain(start_ns, [this] { return outbox_.is_empty(); });
    Status closed = below_->close();
    for (;;) {
      Result<bool> sent = sender_.settled();
      Result<bool> received = receiver_.settled();
      if (!sent || !received) return sent ? received.status() : sent.status();
      if (*sent && *received) break;
      if (Watchdog::now_ns() - start_ns > 2 * config_.limit_ns) {
        return error(Code::kTimeout, "close: copies did not end");
      }
      std::this_thread::yield();
    }
    slots_.reset();  // memory of the device, which may go before this object
    return closed;
  }

 private:
  StagedEndpoint(const StagedConfig& config, SymmetricHeap& heap,
                 std::unique_ptr<StagedSlots> slots, std::unique_ptr<Endpoint> below,
                 std::string key, std::array<std::unique_ptr<CopyChannel>, 2> channels)
      : config_(config),
        heap_(heap),
        slots_(std::move(slots)),
        below_(std::move(below)),
        key_(std::move(key)),
        outbox_(*below_),
        sender_(config, heap, *slots_, outbox_, std::move(channels[0])),
        receiver_(config, heap, *slots_, outbox_, std::move(channels[1])) {}

  Status error(Code code, const std::string& message) const {
    return {code, "staged endpoint of rank " + std::to_string(config_.rank) + ": " + message};
  }

  Status check_caller() {
    if (is_closed_) return error(Code::kUnavailable, "it is closed");
    if (!caller_.is_first()) return error(Code::kInvalidArgument, "used by a second thread");
    return Status::ok();
  }

  Status split_address(uint32_t rank, const std::string& bytes, std::string* key,
                       std::string* below) const {
    std::string_view left = bytes;
    const std::string who = "the address of rank " + std::to_string(rank);
    if (!left.starts_with(kMagic)) {
      return error(Code::kInvalidArgument, who + " is not of a network with bounce buffers");
    }
    left.remove_prefix(kMagic.size());
    const uint64_t slots = take_number(left), piece_bytes = take_number(left);
    const uint64_t key_bytes = take_number(left);
    if (key_bytes > left.size()) return error(Code::kInvalidArgument, who + " is cut off");
    if (slots != config_.slots || piece_bytes != config_.piece_bytes) {
      return error(Code::kInvalidArgument, who + " says " + std::to_string(slots) + " slots of " +
                                               std::to_string(piece_bytes) +
                                               " bytes, this rank has " +
                                               std::to_string(config_.slots) + " of " +
                                               std::to_string(config_.piece_bytes));
    }
    *key = left.substr(0, key_bytes);
    *below = left.substr(key_bytes);
    return Status::ok();
  }

  Status check_write(const Write& w) const {
    const std::string peer = "rank " + std::to_string(w.peer);
    if (w.peer >= is_peer_.size() || !is_peer_[w.peer]) {
      return error(Code::kInvalidArgument, "no route to " + peer);
    }
    if (w.kind == Write::Kind::kFlag) {
      if (w.flag < kMaxFlags) return Status::ok();
      return error(Code::kInvalidArgument, "flag " + std::to_string(w.flag) + " of " + peer +
                                               ": below " + std::to_string(kMaxFlags));
    }
    if (w.bytes == 0) return Status::ok();
    const bool is_mine = heap_.resolve(w.local_address, w.bytes) != nullptr;
    if (is_mine && is_of_peer(w)) return Status::ok();
    return error(Code::kInvalidArgument,
                 std::to_string(w.bytes) + " bytes from address " +
                     std::to_string(w.local_address) + " to address " +
                     std::to_string(w.remote_address) + " of " + peer + ": outside of " +
                     (is_mine ? "the regions imported from it" : "this rank's heap"));
  }

  bool is_of_peer(const Write& w) const {
    const std::lock_guard lock(mutex_);
    const auto it = bytes_of_region_.find({region_of(w.remote_address), w.peer});
    if (it == bytes_of_region_.end()) return false;
    const uint64_t offset = offset_of(w.remote_address);
    return offset <= it->second && w.bytes <= it->second - offset;
  }

  Status progress() {
    MK_RETURN_IF_ERROR(sender_.progress());
    MK_RETURN_IF_ERROR(receiver_.progress(sender_.events()));
    return outbox_.flush();
  }

  Result<size_t> poll_below() {
    std::array<Event, 32> events;
    Result<size_t> count = below_->poll(events);
    if (!count) return count.status();
    for (size_t i = 0; i < *count; ++i) {
      const Event& e = events[i];
      if (e.kind == Event::Kind::kArrived) {
        MK_RETURN_IF_ERROR(take_notice(decode_notice(e.value)));
        continue;
      }
      outbox_.ended();
      if (e.kind == Event::Kind::kFailed) sender_.break_peer(e.peer, below_->last_error());
      sender_.delivered(e.id, e.kind == Event::Kind::kCompleted);
    }
    return count;
  }

  Status take_notice(const Notice& notice) {
    if (notice.rank >= is_peer_.size() || !is_peer_[notice.rank]) {
      return error(Code::kPeerFailed,
                   "a notice of rank " + std::to_string(notice.rank) + ", which is no peer");
    }
    if (notice.kind == Notice::Kind::kPiece) return receiver_.arrived(notice.rank, notice.slot);
    sender_.credited(notice.rank, notice.slot, notice.kind == Notice::Kind::kCredit);
    return Status::ok();
  }

  /// Goes on until it is done, nothing was heard for a while, or the limit is reached.
  template <class Done>
  Status drain(uint64_t start_ns, const Done& done) {
    uint64_t heard_ns = Watchdog::now_ns();
    while (!done()) {
      Result<size_t> count = poll_below();
      if (!count) return count.status();
      MK_RETURN_IF_ERROR(progress());
      const uint64_t now_ns = Watchdog::now_ns();
      if (*count > 0) heard_ns = now_ns;
      if (now_ns - heard_ns > kQuietNs || now_ns - start_ns > config_.limit_ns) break;
      std::this_thread::yield();
    }
    return Status::ok();
  }

  const StagedConfig config_;
  SymmetricHeap& heap_;
  std::unique_ptr<StagedSlots> slots_;  // null once closed
  const std::unique_ptr<Endpoint> below_;
  const std::string key_;
  Outbox outbox_;
  StagedSender sender_;
  StagedReceiver receiver_;
  std::vector<bool> is_peer_;
  uint32_t num_in_flight_ = 0;
  Caller caller_;
  bool is_closed_ = false;
  mutable std::mutex mutex_;                                           // guards all below
  std::map<std::pair<uint32_t, uint32_t>, uint64_t> bytes_of_region_;  // by number and peer
};

}  // namespace

Result<std::unique_ptr<Endpoint>> create_staged(const StagedConfig& config, SymmetricHeap& heap,
                                                const MakeBelow& make_below) {
  return StagedEndpoint::create(config, heap, make_below);
}

}  // namespace mkernel
