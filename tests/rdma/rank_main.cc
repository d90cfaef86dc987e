// rdma_rank: one of two ranks in processes, or machines, of their own, over verbs.
//   rdma_rank check|bench RANK HOST DEVICE [OPTION=VALUE...]
// Rank 1 listens on HOST, rank 0 connects to it: that socket carries addresses, keys and barriers.
// check: chunks with flags in both directions at once, immediates, and then rank 1 dies.
// bench: rank 0 writes chunks with flags as fast as they go, and prints MB/s (1e6 bytes).
// Options: chunk_bytes, chunks, depth, mtu, qps, timeout, limit_s. Exit status: 0, 1 with a
// message, 2 usage.
#include <arpa/inet.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <map>
#include <string>
#include <thread>
#include <vector>

#include "core/sync.h"
#include "memory/symmetric_heap.h"
#include "network/arrival.h"
#include "network/verbs/verbs.h"

namespace mkernel::test {
namespace {

using Clock = std::chrono::steady_clock;
constexpr uint32_t kSlots = 16;  // of a region: chunks that may be on their way
constexpr uint16_t kTcpPort = 18600;

#define MK_NEED(condition, ...)                        \
  do {                                                 \
    if (!(condition)) {                                \
      std::fprintf(stderr, "rdma_rank: " __VA_ARGS__); \
      std::fputc('\n', stderr);                        \
      std::exit(1);                                    \
    }                                                  \
  } while (false)

template <class T>
T need(Result<T> result) {
  MK_NEED(result, "%s", result.status().to_string().c_str());
  return std::move(result).value();
}
void need(const Status& status) { MK_NEED(status, "%s", status.to_string().c_str()); }

struct Arguments {
  std::string mode, host, device;
  uint32_t rank = 0;
  std::map<std::string, uint64_t> options = {
      {"chunk_bytes", 65536}, {"chunks", 200}, {"depth", 16}, {"mtu", 0}, {"qps", 1},
      {"timeout", 14},        {"limit_s", 60}};
  uint64_t operator[](const char* name) const { return options.at(name); }
};

/// The socket between the two.
class Wire {
 public:
  Wire(uint32_t rank, const std::string& host) {
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_port = htons(kTcpPort);
    MK_NEED(inet_pton(AF_INET, host.c_str(), &address.sin_addr) == 1, "%s is no address",
            host.c_str());
    const auto* const any = reinterpret_cast<const sockaddr*>(&address);
    if (rank == 1) {
      const int listener = socket(AF_INET, SOCK_STREAM, 0), on = 1;
      setsockopt(listener, SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);
      MK_NEED(bind(listener, any, sizeof address) == 0 && listen(listener, 1) == 0, "listen: %s",
              std::strerror(errno));
      socket_ = accept(listener, nullptr, nullptr);
      close(listener);
    }
    for (int tries = 0; rank == 0 && tries < 300; ++tries) {
      socket_ = socket(AF_INET, SOCK_STREAM, 0);
      if (::connect(socket_, any, sizeof address) == 0) break;
      close(socket_);
      socket_ = -1;
      std::this_thread::sleep_for(std::chrono::milliseconds(100));
    }
    MK_NEED(socket_ >= 0, "no connection to %s", host.c_str());
  }
  ~Wire() { close(socket_); }
  Wire(const Wire&) = delete;
  Wire& operator=(const Wire&) = delete;

  /// Gives the other side's bytes for mine. Also a barrier.
  std::string exchange(const std::string& mine) {
    const auto size = static_cast<uint32_t>(mine.size());
    MK_NEED(write(socket_, &size, sizeof size) == sizeof size, "the other rank is gone");
    MK_NEED(write(socket_, mine.data(), size) == static_cast<ssize_t>(size), "it is gone");
    uint32_t its_size = 0;
    read_all(&its_size, sizeof its_size);
    std::string its(its_size, '\0');
    read_all(its.data(), its.size());
    return its;
  }
  void barrier() { (void)exchange("barrier"); }

 private:
  void read_all(void* data, size_t bytes) {
    MK_NEED(recv(socket_, data, bytes, MSG_WAITALL) == static_cast<ssize_t>(bytes),
            "the other rank is gone");
  }
  int socket_ = -1;
};

char pattern(uint64_t key, uint64_t i) {
  return static_cast<char>((key * 131 + i * 7 + i / 251) | 1);
}

class Rank {
 public:
  explicit Rank(const Arguments& arguments)
      : arguments_(arguments),
        wire_(arguments.rank, arguments.host),
        memory_(create_host_memory()),
        heap_(need(SymmetricHeap::create(*memory_, arguments.rank, uint64_t{1} << 30))),
        // What this rank sends, and then what it gets.
        region_(need(heap_->allocate(2 * kSlots * arguments["chunk_bytes"]))),
        flags_(need(heap_->allocate_flags(kSlots, 0))) {
    VerbsOptions options{.devices = {arguments.device}};
    options.depth = static_cast<int>(arguments["depth"]);
    options.mtu = static_cast<int>(arguments["mtu"]);
    options.timeout = static_cast<int>(arguments["timeout"]);
    options.qps_per_peer = static_cast<int>(arguments["qps"]);
    endpoint_ = need(create_verbs(options, *heap_, arguments.rank, 2, 5'000'000'000));
    std::array<std::string, 2> addresses;
    addresses[rank()] = endpoint_->address();
    addresses[peer()] = wire_.exchange(addresses[rank()]);
    need(endpoint_->connect(addresses));
    const std::string key = need(endpoint_->export_region(*region_));
    need(endpoint_->import_region(peer(), region_->address, region_->bytes, wire_.exchange(key)));
    deadline_ = Clock::now() + std::chrono::seconds(arguments["limit_s"]);
    wire_.barrier();
  }

  void check() {
    send_and_receive_chunks();
    wire_.barrier();
    send_and_receive_immediates();
    wire_.barrier();
    if (rank() == 1) _exit(0);  // as if it had been killed
    see_the_peer_die();
    std::printf("rdma_rank: all checks passed\n");
  }

  void bench() {
    if (rank() == 0) {
      const auto start = Clock::now();
      const uint64_t chunks = arguments_["chunks"];
      for (uint64_t posted = 0, complete = 0; complete < chunks;) {
        while (posted < chunks && num_in_flight_ + 2 <= arguments_["depth"]) {
          post_chunk(static_cast<uint32_t>(++posted));
        }
        complete += poll();
      }
      const std::chrono::duration<double> seconds = Clock::now() - start;
      std::printf("%.2f MB/s\n",
                  1e-6 * static_cast<double>(chunks * arguments_["chunk_bytes"]) / seconds.count());
    }
    wire_.barrier();
    need(endpoint_->close());
    wire_.barrier();
  }

 private:
  uint32_t rank() const { return arguments_.rank; }
  uint32_t peer() const { return 1 - arguments_.rank; }
  /// Where chunk n, counted from 1, is; its flag's number is that of its slot.
  uint64_t offset_of_chunk(uint32_t n) const { return n % kSlots * arguments_["chunk_bytes"]; }
  uint64_t bytes_of_chunk(uint32_t n) const { return arguments_["chunk_bytes"] - n % 64; }

  void post_chunk(uint32_t n) {
    const uint64_t address = region_->address + offset_of_chunk(n);
    const ChunkWrites chunk = writes_of_chunk(
        ArrivalMethod::kFlagBehindData,
        {.peer = peer(),
         .local_address = address,
         .remote_address = address + kSlots * arguments_["chunk_bytes"],
         .bytes = arguments_.mode == "bench" ? arguments_["chunk_bytes"] : bytes_of_chunk(n),
         .flag = n % kSlots,
         .value = n,
         .id = 2 * uint64_t{n}});
    need(endpoint_->post({chunk.writes.data(), chunk.count}));
    num_in_flight_ += chunk.count;
  }

  /// Chunks that are complete now: completions of their flags.
  uint32_t poll() {
    MK_NEED(Clock::now() < deadline_, "the time is up");
    std::array<Event, 32> events;
    const size_t count = need(endpoint_->poll(events));
    uint32_t chunks = 0;
    for (size_t i = 0; i < count; ++i) {
      MK_NEED(events[i].kind != Event::Kind::kFailed, "%s", endpoint_->last_error().c_str());
      if (events[i].kind == Event::Kind::kArrived) {
        immediates_.push_back(events[i].value);
        continue;
      }
      --num_in_flight_;
      chunks += events[i].id % 2;
    }
    return chunks;
  }

  void send_and_receive_chunks() {
    const auto chunks = static_cast<uint32_t>(arguments_["chunks"]);
    uint32_t received = 0, complete = 0;
    for (uint32_t first = 1; first <= chunks; first += kSlots) {
      const uint32_t last = std::min(first + kSlots - 1, chunks);
      for (uint32_t n = first; n <= last; ++n) {
        char* const data = region_->data + offset_of_chunk(n);
        for (uint64_t i = 0; i < bytes_of_chunk(n); ++i) data[i] = pattern(n + rank(), i);
      }
      wire_.barrier();  // both have read what the slots held
      for (uint32_t n = first; n <= last || received < last || complete < last;) {
        if (n <= last && num_in_flight_ + 2 <= arguments_["depth"]) post_chunk(n++);
        complete += poll();
        if (received < last && take_chunk(received + 1)) ++received;
      }
      wire_.barrier();
    }
  }

  /// Looks at the last bytes first, since a signal would most likely overtake them.
  bool take_chunk(uint32_t n) {
    if (load_acquire<Scope::kSys>(heap_->flag(n % kSlots)) != n) return false;
    const char* const data =
        region_->data + kSlots * arguments_["chunk_bytes"] + offset_of_chunk(n);
    for (uint64_t i = bytes_of_chunk(n); i-- > 0;) {
      MK_NEED(data[i] == pattern(n + peer(), i), "chunk %u: byte %llu is missing", n,
              static_cast<unsigned long long>(i));
    }
    return true;
  }

  void send_and_receive_immediates() {
    constexpr uint32_t kImmediates = 500;
    for (uint32_t posted = 0;
         posted < kImmediates || num_in_flight_ > 0 || immediates_.size() < kImmediates;) {
      if (posted < kImmediates && num_in_flight_ < arguments_["depth"]) {
        const Write w{.kind = Write::Kind::kDataImmediate,
                      .peer = peer(),
                      .local_address = region_->address,
                      .remote_address = region_->address + kSlots * arguments_["chunk_bytes"],
                      .bytes = posted % 2 * 64,
                      .value = posted};
        need(endpoint_->post({&w, 1}));
        ++posted;
        ++num_in_flight_;
      }
      (void)poll();
    }
    std::ranges::sort(immediates_);
    for (uint32_t i = 0; i < kImmediates; ++i) MK_NEED(immediates_[i] == i, "immediate %u", i);
  }

  void see_the_peer_die() {
    const Write w{.kind = Write::Kind::kFlag, .peer = peer(), .flag = 1, .value = 1, .id = 77};
    std::array<Event, 1> event;
    do {  // until then its process may still be ending
      need(endpoint_->post({&w, 1}));
      while (need(endpoint_->poll(event)) == 0) MK_NEED(Clock::now() < deadline_, "it lives on");
    } while (event[0].kind == Event::Kind::kCompleted);
    MK_NEED(event[0].kind == Event::Kind::kFailed && event[0].id == 77, "another event");
    std::printf("rdma_rank: %s\n", endpoint_->last_error().c_str());
    need(endpoint_->close());
  }

  const Arguments& arguments_;
  Wire wire_;
  std::unique_ptr<DeviceMemory> memory_;
  std::unique_ptr<SymmetricHeap> heap_;
  HeapRegionPtr region_;
  FlagRangePtr flags_;
  std::unique_ptr<Endpoint> endpoint_;
  Clock::time_point deadline_;
  uint64_t num_in_flight_ = 0;  // writes
  std::vector<uint32_t> immediates_;
};

int run(int argc, char** argv) {
  Arguments arguments;
  if (argc < 5) {
    std::fprintf(stderr, "usage: rdma_rank check|bench RANK HOST DEVICE [OPTION=VALUE...]\n");
    return 2;
  }
  arguments.mode = argv[1];
  arguments.rank = std::atoi(argv[2]) == 0 ? 0 : 1;
  arguments.host = argv[3];
  arguments.device = argv[4];
  for (int i = 5; i < argc; ++i) {
    const std::string text = argv[i];
    const size_t equals = std::min(text.find('='), text.size());
    const auto it = arguments.options.find(text.substr(0, equals));
    if (it == arguments.options.end() || equals == text.size()) {
      std::fprintf(stderr, "rdma_rank: no option %s\n", argv[i]);
      return 2;
    }
    it->second = std::strtoull(text.c_str() + equals + 1, nullptr, 10);
  }
  Rank rank(arguments);
  if (arguments.mode == "check") {
    rank.check();
  } else {
    rank.bench();
  }
  return 0;
}

}  // namespace
}  // namespace mkernel::test

int main(int argc, char** argv) { return mkernel::test::run(argc, argv); }
