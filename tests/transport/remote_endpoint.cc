#include "transport/remote_endpoint.h"

#include <fcntl.h>
#include <sched.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <map>
#include <mutex>
#include <thread>
#include <type_traits>

#include "transport/byte_channel.h"

namespace mkernel::test {
namespace {

class MemoryOfProcesses final : public DeviceMemory {
 public:
  ~MemoryOfProcesses() override {
    for (const auto& [start, bytes] : mapped_) (void)munmap(start, bytes);
  }

  bool host_accessible() const override { return true; }
  Result<void*> allocate(uint64_t bytes) override {
    if (bytes == 0) return host_->allocate(bytes);
    void* const start =
        mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (start == MAP_FAILED) return Status(Code::kUnavailable, std::strerror(errno));
    mapped_[start] = bytes;
    return start;
  }
  Result<void*> allocate_pinned(uint64_t bytes) override { return allocate(bytes); }
  void release(void* p) override {
    const auto found = mapped_.find(p);
    if (found == mapped_.end()) return host_->release(p);
    (void)munmap(p, found->second);
    mapped_.erase(found);
  }
  Result<void*> allocate_shared(uint64_t bytes) override { return host_->allocate_shared(bytes); }
  Result<int> export_shared(void* p) override { return host_->export_shared(p); }
  Result<void*> import_shared(int descriptor, uint64_t bytes) override {
    return host_->import_shared(descriptor, bytes);
  }
  Status upload(void* dst, const void* src, uint64_t bytes) override {
    return host_->upload(dst, src, bytes);
  }
  Status download(void* dst, const void* src, uint64_t bytes) override {
    return host_->download(dst, src, bytes);
  }
  Result<uint64_t> peek(uint64_t* word) override { return host_->peek(word); }
  Result<std::unique_ptr<CopyChannel>> create_channel() override { return host_->create_channel(); }

 private:
  const std::unique_ptr<DeviceMemory> host_ = create_host_memory();
  std::map<void*, uint64_t> mapped_;
};

enum class Call : uint8_t {
  kTraits,
  kAddress,
  kConnect,
  kExport,
  kImport,
  kForget,
  kPost,
  kPoll,
  kStatistics,
  kLastError,
  kClose,
};

/// Arguments or results in a row. Both sides are one program, so they agree on every layout.
class Row {
 public:
  Row() = default;
  explicit Row(std::string bytes) : bytes_(std::move(bytes)) {}

  template <class T>
  requires std::is_trivially_copyable_v<T> Row& put(const T& value) {
    bytes_.append(reinterpret_cast<const char*>(&value), sizeof value);
    return *this;
  }
  Row& put(const std::string& text) {
    put(text.size());
    bytes_ += text;
    return *this;
  }
  Row& put(const Status& status) {
    return put(status.code()).put(std::string(status ? "" : status.message()));
  }

  template <class T>
  T take() {
    T value{};
    const std::string bytes = bytes_.substr(at_, sizeof value);
    std::memcpy(&value, bytes.data(), bytes.size());
    at_ += bytes.size();
    return value;
  }
  std::string take_text() {
    const auto size = take<size_t>();
    at_ += size;
    return bytes_.substr(at_ - size, size);
  }
  Status take_status() {
    const auto code = take<Code>();
    const std::string message = take_text();
    return code == Code::kOk ? Status::ok() : Status(code, message);
  }

  const std::string& bytes() const { return bytes_; }

 private:
  std::string bytes_;
  size_t at_ = 0;
};

/// The process that has the endpoint: does what it is asked to, until nobody is there to ask.
class Server {
 public:
  explicit Server(std::unique_ptr<Endpoint> endpoint) : endpoint_(std::move(endpoint)) {}

  int serve(ByteChannel& channel) {
    for (;;) {
      const std::string asked = channel.receive();
      if (asked.empty()) return 0;
      Row row(asked);
      const auto call = row.take<Call>();
      std::string answer;
      if (row.take<bool>()) {
        answer = answer_to(call, row);
      } else {
        std::thread([&] { answer = answer_to(call, row); }).join();
      }
      channel.send(answer);
    }
  }

 private:
  std::string answer_to(Call call, Row& row) {
    switch (call) {
      case Call::kTraits: return Row().put(endpoint_->traits()).bytes();
      case Call::kAddress: return Row().put(endpoint_->address()).bytes();
      case Call::kConnect: {
        std::vector<std::string> addresses(row.take<size_t>());
        for (std::string& address : addresses) address = row.take_text();
        return Row().put(endpoint_->connect(addresses)).bytes();
      }
      case Call::kExport: return of_text(endpoint_->export_region(row.take<HeapRegion>()));
      case Call::kImport: {
        const auto peer = row.take<uint32_t>();
        const auto address = row.take<uint64_t>(), bytes = row.take<uint64_t>();
        return Row().put(endpoint_->import_region(peer, address, bytes, row.take_text())).bytes();
      }
      case Call::kForget:
        endpoint_->forget_region(row.take<uint64_t>());
        return Row().put(true).bytes();
      case Call::kPost: {
        std::vector<Write> writes(row.take<size_t>());
        for (Write& write : writes) write = row.take<Write>();
        return Row().put(endpoint_->post(writes)).bytes();
      }
      case Call::kPoll: return poll(row.take<size_t>());
      case Call::kStatistics: return Row().put(endpoint_->statistics()).bytes();
      case Call::kLastError: return Row().put(endpoint_->last_error()).bytes();
      case Call::kClose: return Row().put(endpoint_->close()).bytes();
    }
    return {};
  }

  static std::string of_text(const Result<std::string>& text) {
    return text ? Row().put(Status::ok()).put(*text).bytes() : Row().put(text.status()).bytes();
  }
  std::string poll(size_t limit) {
    std::vector<Event> events(limit);
    const Result<size_t> count = endpoint_->poll(events);
    if (!count) return Row().put(count.status()).bytes();
    Row row;
    row.put(Status::ok()).put(*count);
    for (size_t i = 0; i < *count; ++i) row.put(events[i]);
    return row.bytes();
  }

  const std::unique_ptr<Endpoint> endpoint_;
};

class RemoteEndpoint final : public Endpoint {
 public:
  RemoteEndpoint(SymmetricHeap& heap, uint32_t rank, uint32_t num_ranks,
                 const CreateEndpoint& create)
      : rank_(rank), process_([&](ByteChannel& channel) {
          return Server(create(heap, rank, num_ranks)).serve(channel);
        }) {}

  LinkTraits traits() const override { return ask(Call::kTraits, {}).take<LinkTraits>(); }
  std::string address() const override { return ask(Call::kAddress, {}).take_text(); }
  Status connect(std::span<const std::string> address_of_rank) override {
    Row row;
    row.put(address_of_rank.size());
    for (const std::string& address : address_of_rank) row.put(address);
    return ask(Call::kConnect, row).take_status();
  }
  Result<std::string> export_region(const HeapRegion& region) override {
    Row answer = ask(Call::kExport, Row().put(region));
    if (Status status = answer.take_status(); !status) return status;
    return answer.take_text();
  }
  Status import_region(uint32_t peer, uint64_t address, uint64_t bytes,
                       const std::string& key) override {
    return ask(Call::kImport, Row().put(peer).put(address).put(bytes).put(key)).take_status();
  }
  void forget_region(uint64_t address) override { ask(Call::kForget, Row().put(address)); }
  Status post(std::span<const Write> writes) override {
    Row row;
    row.put(writes.size());
    for (const Write& write : writes) row.put(write);
    return ask(Call::kPost, row).take_status();
  }
  Result<size_t> poll(std::span<Event> events) override {
    Row answer = ask(Call::kPoll, Row().put(events.size()));
    if (Status status = answer.take_status(); !status) return status;
    const auto count = answer.take<size_t>();
    for (size_t i = 0; i < count; ++i) events[i] = answer.take<Event>();
    return count;
  }
  EndpointStatistics statistics() const override {
    return ask(Call::kStatistics, {}).take<EndpointStatistics>();
  }
  std::string last_error() const override { return ask(Call::kLastError, {}).take_text(); }
  Status close() override { return ask(Call::kClose, {}).take_status(); }

 private:
  /// The threads of this process are told apart in the other one as what they are there for: the
  /// one that posts and polls, and any other.
  Row ask(Call call, const Row& arguments) const {
    const std::lock_guard lock(mutex_);
    const bool drives = call == Call::kPost || call == Call::kPoll;
    if (drives && driver_ == std::thread::id()) driver_ = std::this_thread::get_id();
    const bool is_driver = !drives || driver_ == std::this_thread::get_id();
    process_.channel().send(Row().put(call).put(is_driver).bytes() + arguments.bytes());
    std::string answer = process_.channel().receive();
    if (!answer.empty()) return Row(std::move(answer));
    return Row().put(
        Status(Code::kPeerFailed, "the process of rank " + std::to_string(rank_) + " is gone"));
  }

  const uint32_t rank_;
  mutable std::mutex mutex_;
  mutable std::thread::id driver_;
  mutable ChildProcess process_;
};

}  // namespace

std::unique_ptr<DeviceMemory> create_memory_of_processes() {
  return std::make_unique<MemoryOfProcesses>();
}

std::vector<std::unique_ptr<Endpoint>> create_in_processes(
    std::span<SymmetricHeap* const> heap_of_rank, const CreateEndpoint& create) {
  std::vector<std::unique_ptr<Endpoint>> endpoints;
  const auto num_ranks = static_cast<uint32_t>(heap_of_rank.size());
  for (uint32_t rank = 0; rank < num_ranks; ++rank) {
    endpoints.push_back(
        std::make_unique<RemoteEndpoint>(*heap_of_rank[rank], rank, num_ranks, create));
  }
  return endpoints;
}

std::string enter_network_namespace(const std::string& name) {
  const std::string path = "/run/netns/" + name;
  const int fd = open(path.c_str(), O_RDONLY | O_CLOEXEC);
  const bool entered = fd >= 0 && setns(fd, CLONE_NEWNET) == 0;
  const int error = errno;
  if (fd >= 0) (void)close(fd);
  return entered ? "" : path + ": " + std::strerror(error);
}

}  // namespace mkernel::test
