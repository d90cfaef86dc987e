// Two endpoints of a transport, as two proxies would use them: each chunk brings its signal, and an
// end that waits for one polls.
#include <algorithm>
#include <array>
#include <atomic>
#include <thread>

#include "core/maths.h"
#include "core/sync.h"
#include "core/watchdog.h"
#include "net_pair.h"
#include "network/arrival.h"
#include "operators/wait_limits.h"
#include "two_ranks.h"

namespace mkernel::app {
namespace {

constexpr uint32_t kFlag = 0;  // of either end, for all its chunks
constexpr uint64_t kMaxBatch = 8;
constexpr size_t kMaxEvents = 64;
constexpr uint32_t kSpins = 64;  // polls that find nothing, before the time slice is given away

/// One end, as its thread uses it.
class End {
 public:
  struct Limits {
    uint64_t silence_ns;
    std::atomic<bool>* broken;  // by either end
  };
  End(uint32_t rank, Endpoint& endpoint, uint64_t address, uint32_t* flag, const Limits& limits)
      : rank_(rank),
        endpoint_(endpoint),
        address_(address),
        flag_(flag),
        limits_(limits),
        method_(arrival_method(endpoint.traits())) {}

  /// Sends chunks as fast as there is room, and waits until all are placed.
  Status stream(const NetCase& c) {
    const uint64_t begin = sent_, end = sent_ + static_cast<uint64_t>(c.chunks);
    while (completed_ < end) {
      const uint64_t room = std::min(window(c) - (sent_ - completed_), end - sent_);
      if (room > 0) MK_RETURN_IF_ERROR(send(c, sent_ - begin, std::min(room, kMaxBatch)));
      MK_RETURN_IF_ERROR(poll());
    }
    return Status::ok();
  }

  /// Sends `chunks` chunks from number `first` on. Their completions are taken when they come.
  Status send(const NetCase& c, uint64_t first, uint64_t chunks) {
    std::array<Write, 2 * kMaxBatch> writes;
    size_t count = 0;
    for (uint64_t i = first; i < first + chunks; ++i, ++sent_) {
      const ChunkWrites chunk =
          writes_of_chunk(method_, {.peer = 1 - rank_,
                                    .local_address = address_ + offset_of_chunk(c, i),
                                    .remote_address = address_ + offset_of_chunk(c, i),
                                    .bytes = c.bytes,
                                    .flag = kFlag,
                                    .value = static_cast<uint32_t>(sent_ + 1),
                                    .id = 2 * sent_});
      for (uint32_t w = 0; w < chunk.count; ++w) writes[count++] = chunk.writes[w];
    }
    writes_in_flight_ += count;
    const Status posted = endpoint_.post({writes.data(), count});
    return posted ? posted : fail(posted);
  }

  /// Waits until `chunks` more have arrived.
  Status receive(int64_t chunks) {
    awaited_ += static_cast<uint64_t>(chunks);
    for (uint64_t before = count_arrived(); before < awaited_;) {
      MK_RETURN_IF_ERROR(poll());
      if (count_arrived() != before) idle_polls_ = 0;
      before = arrived_;
    }
    return Status::ok();
  }

  /// Waits until all that was sent is placed.
  Status finish() {
    while (completed_ < sent_) MK_RETURN_IF_ERROR(poll());
    return Status::ok();
  }

 private:
  uint64_t window(const NetCase& c) const {
    const uint64_t room = endpoint_.traits().max_in_flight / max_writes_per_chunk(method_);
    return std::min({room, static_cast<uint64_t>(c.depth), kNetBytes / c.bytes});
  }

  /// The flag counts the chunks that arrived, or their immediates are counted.
  uint64_t count_arrived() {
    if (method_ == ArrivalMethod::kFlagBehindData)
      arrived_ += load_acquire<Scope::kSys>(flag_) - static_cast<uint32_t>(arrived_);
    return arrived_;
  }

  Status poll() {
    std::array<Event, kMaxEvents> events;
    const Result<size_t> count = endpoint_.poll(events);
    if (!count) return fail(count.status());
    for (size_t i = 0; i < count.value(); ++i) {
      if (events[i].kind == Event::Kind::kFailed)
        return fail({Code::kPeerFailed, "the network reported that a write failed"});
      if (events[i].kind == Event::Kind::kArrived) ++arrived_;
      if (events[i].kind == Event::Kind::kCompleted) --writes_in_flight_;
    }
    completed_ = sent_ - ceil_div<uint64_t>(writes_in_flight_, max_writes_per_chunk(method_));
    if (count.value() == 0) return idle();
    idle_polls_ = 0;
    return Status::ok();
  }

  Status idle() {
    if (++idle_polls_ <= kSpins) return Status::ok();
    std::this_thread::yield();
    if (limits_.broken->load()) return {Code::kPeerFailed, "the other end has failed"};
    if (idle_polls_ == kSpins + 1) idle_since_ns_ = Watchdog::now_ns();
    if (Watchdog::now_ns() - idle_since_ns_ <= limits_.silence_ns) return Status::ok();
    return fail({Code::kTimeout, "rank " + std::to_string(rank_) + ": the network was silent for " +
                                     std::to_string(limits_.silence_ns / 1000) + " us"});
  }

  Status fail(const Status& status) {
    limits_.broken->store(true);
    return status;
  }

  const uint32_t rank_;
  Endpoint& endpoint_;
  const uint64_t address_;
  uint32_t* const flag_;
  const Limits limits_;
  const ArrivalMethod method_;
  // Chunks since the start.
  uint64_t sent_ = 0, completed_ = 0, awaited_ = 0, arrived_ = 0;
  uint64_t writes_in_flight_ = 0;
  uint64_t idle_polls_ = 0, idle_since_ns_ = 0;
};

class TransportPair final : public NetPair {
 public:
  explicit TransportPair(std::unique_ptr<TwoRanks> ranks) : ranks_(std::move(ranks)) {}
  ~TransportPair() override = default;
  TransportPair(const TransportPair&) = delete;
  TransportPair& operator=(const TransportPair&) = delete;

  Status connect(const std::string& transport, const ClusterOptions& options) {
    Result<Endpoints> endpoints = ranks_->connect(transport, options);
    if (!endpoints) return endpoints.status();
    endpoints_ = std::move(endpoints).value();
    for (uint32_t rank = 0; rank < 2; ++rank)
      ends_.push_back(std::make_unique<End>(
          rank, *endpoints_[rank], ranks_->address(), ranks_->flag(rank, kFlag),
          End::Limits{detail::wait_limits(options).progress_ns, &broken_}));
    fill_source(ranks_->data(0));
    return Status::ok();
  }

  Result<double> stream_us(const NetCase& c) override {
    double us = 0;
    const auto send = [&]() -> Status {
      const uint64_t start_ns = Watchdog::now_ns();
      MK_RETURN_IF_ERROR(ends_[0]->stream(c));
      us = static_cast<double>(Watchdog::now_ns() - start_ns) * 1e-3;
      return Status::ok();
    };
    MK_RETURN_IF_ERROR(threads_.run(send, [&] { return ends_[1]->receive(c.chunks); }));
    return us;
  }

  Result<std::vector<double>> latencies_us(const NetCase& c) override {
    std::vector<double> us;
    const auto ping = [&]() -> Status {
      for (int64_t i = 0; i < c.chunks; ++i) {
        const uint64_t start_ns = Watchdog::now_ns();
        MK_RETURN_IF_ERROR(ends_[0]->send(c, static_cast<uint64_t>(i), 1));
        MK_RETURN_IF_ERROR(ends_[0]->receive(1));
        us.push_back(static_cast<double>(Watchdog::now_ns() - start_ns) * 0.5e-3);
        MK_RETURN_IF_ERROR(ends_[0]->finish());
      }
      return Status::ok();
    };
    const auto pong = [&]() -> Status {
      for (int64_t i = 0; i < c.chunks; ++i) {
        MK_RETURN_IF_ERROR(ends_[1]->receive(1));
        MK_RETURN_IF_ERROR(ends_[1]->send(c, static_cast<uint64_t>(i), 1));
        MK_RETURN_IF_ERROR(ends_[1]->finish());
      }
      return Status::ok();
    };
    MK_RETURN_IF_ERROR(threads_.run(ping, pong));
    return us;
  }

  bool take_arrived(const NetCase& c) override {
    return take_equal(ranks_->data(0), ranks_->data(1), c);
  }

 private:
  const std::unique_ptr<TwoRanks> ranks_;
  std::atomic<bool> broken_ = false;
  Endpoints endpoints_;
  std::vector<std::unique_ptr<End>> ends_;
  TwoThreads threads_;  // stop first
};

}  // namespace

Result<std::unique_ptr<NetPair>> create_transport_pair(const std::string& transport,
                                                       const ClusterOptions& options) {
  Result<std::unique_ptr<TwoRanks>> ranks = TwoRanks::create();
  if (!ranks) return ranks.status();
  auto pair = std::make_unique<TransportPair>(std::move(ranks).value());
  MK_RETURN_IF_ERROR(pair->connect(transport, options));
  return std::unique_ptr<NetPair>(std::move(pair));
}

}  // namespace mkernel::app
