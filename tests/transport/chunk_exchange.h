// Two ranks, each in a process of its own, that send each other chunks of mixed sizes and check
// each one when it arrives.
#pragma once
#include <array>
#include <chrono>
#include <memory>
#include <random>
#include <string>
#include <thread>
#include <vector>

#include "transport/byte_channel.h"
#include "transport/transports.h"

namespace mkernel::test {

/// One of two ranks: a heap with one region, and an endpoint.
class PairRank {
 public:
  PairRank(uint32_t rank, uint64_t region_bytes, const LibfabricOptions& options,
           uint64_t limit_ns = 30'000'000'000)
      : rank_(rank),
        heap_(value_of(SymmetricHeap::create(*memory_, rank, uint64_t{1} << 30))),
        region_(value_of(heap_->allocate(region_bytes))),
        endpoint_(value_of(create_libfabric(options, *heap_, rank, 2, limit_ns))) {
    std::memset(region_->data, 0, region_bytes);
  }

  uint32_t peer() const { return 1 - rank_; }
  char* data() const { return region_->data; }
  Endpoint& endpoint() const { return *endpoint_; }

  /// Exchanges addresses and keys. Empty, or what went wrong.
  std::string meet(const ByteChannel& channel) {
    std::array<std::string, 2> addresses;
    addresses[rank_] = endpoint_->address();
    channel.send(addresses[rank_]);
    addresses[peer()] = channel.receive();
    if (const Status s = endpoint_->connect(addresses); !s) return s.message();
    channel.send(value_of(endpoint_->export_region(*region_)));
    const Status s =
        endpoint_->import_region(peer(), region_->address, region_->bytes, channel.receive());
    return s ? "" : s.message();
  }

  /// Bytes to the same place of the peer, with an immediate that is the id too.
  Status write(uint64_t from, uint64_t to, uint64_t bytes, uint32_t id) {
    const Write w{.kind = Write::Kind::kDataImmediate,
                  .peer = peer(),
                  .local_address = region_->address + from,
                  .remote_address = region_->address + to,
                  .bytes = bytes,
                  .value = id,
                  .id = id};
    return endpoint_->post({&w, 1});
  }

 private:
  const uint32_t rank_;
  const std::unique_ptr<DeviceMemory> memory_ = create_host_memory();
  const std::unique_ptr<SymmetricHeap> heap_;
  const HeapRegionPtr region_;
  const std::unique_ptr<Endpoint> endpoint_;
};

struct Exchange {
  uint32_t chunks = 2000;
  uint64_t large_bytes = 40'000;  // one chunk in eight is up to so large
  uint64_t small_bytes = 2'000;
  std::chrono::seconds limit{60};
};

/// One rank's side of an exchange: the first half of its region goes out, the other half comes in.
class ChunkExchange {
 public:
  ChunkExchange(const Exchange& exchange, uint32_t rank, const LibfabricOptions& options)
      : exchange_(exchange), rank_(rank), max_in_flight_(options.max_in_flight) {
    std::mt19937_64 random(7);  // both ranks must know the sizes
    for (uint32_t i = 0; i < exchange.chunks; ++i) {
      begin_.push_back(half_bytes_);
      half_bytes_ += random() % (i % 8 == 0 ? exchange.large_bytes : exchange.small_bytes);
    }
    begin_.push_back(half_bytes_);
    self_ = std::make_unique<PairRank>(rank, 2 * half_bytes_, options);
    completions_.resize(exchange.chunks);
    arrivals_.resize(exchange.chunks);
    for (uint32_t i = 0; i < exchange.chunks; ++i) {
      fill_pattern(self_->data() + begin_[i], bytes(i), key(rank, i));
    }
  }

  /// Empty, or what went wrong.
  std::string run(const ByteChannel& channel) {
    if (std::string error = self_->meet(channel); !error.empty()) return error;
    const auto deadline = std::chrono::steady_clock::now() + exchange_.limit;
    bool told = false;
    // The peer may still need this rank's polls when this one has all.
    while (!told || !channel.is_readable()) {
      if (std::string error = step(); !error.empty()) return error;
      if (!told && completed_ == exchange_.chunks && arrived_ == exchange_.chunks) {
        channel.send("done");
        told = true;
      }
      if (std::chrono::steady_clock::now() > deadline) {
        return std::to_string(completed_) + " completed and " + std::to_string(arrived_) +
               " arrived of " + std::to_string(exchange_.chunks);
      }
    }
    if (channel.receive() != "done") return "the peer went before it had all";
    const Status closed = self_->endpoint().close();
    return closed ? "" : closed.message();
  }

 private:
  uint64_t bytes(uint32_t i) const { return begin_[i + 1] - begin_[i]; }
  static uint64_t key(uint32_t rank, uint32_t i) { return uint64_t{i} * 2 + rank; }

  std::string step() {
    while (posted_ < exchange_.chunks && posted_ - completed_ < max_in_flight_) {
      const Status posted =
          self_->write(begin_[posted_], half_bytes_ + begin_[posted_], bytes(posted_), posted_);
      if (!posted) return posted.message();
      ++posted_;
    }
    std::array<Event, 16> events;
    const Result<size_t> count = self_->endpoint().poll(events);
    if (!count) return count.status().message();
    if (count.value() == 0) std::this_thread::yield();
    for (size_t i = 0; i < count.value(); ++i) {
      if (std::string error = take(events[i]); !error.empty()) return error;
    }
    return {};
  }

  std::string take(const Event& e) {
    if (e.kind == Event::Kind::kFailed) return "a write failed: " + self_->endpoint().last_error();
    if (e.peer != self_->peer()) return "an event of rank " + std::to_string(e.peer);
    const bool arrived = e.kind == Event::Kind::kArrived;
    const auto i = static_cast<uint32_t>(arrived ? e.value : e.id);
    if (i >= exchange_.chunks || ++(arrived ? arrivals_ : completions_)[i] != 1) {
      return "chunk " + std::to_string(i) + (arrived ? " arrived" : " completed") + " again";
    }
    ++(arrived ? arrived_ : completed_);
    if (!arrived) return {};
    const auto whole =
        has_pattern(self_->data() + half_bytes_ + begin_[i], bytes(i), key(self_->peer(), i));
    return whole ? "" : "chunk " + std::to_string(i) + ": " + whole.message();
  }

  const Exchange exchange_;
  const uint32_t rank_;
  const uint32_t max_in_flight_;
  std::vector<uint64_t> begin_;  // of each chunk, in its half; then their end
  uint64_t half_bytes_ = 0;
  std::unique_ptr<PairRank> self_;
  std::vector<int> completions_, arrivals_;
  uint32_t posted_ = 0, completed_ = 0, arrived_ = 0;
};

}  // namespace mkernel::test
