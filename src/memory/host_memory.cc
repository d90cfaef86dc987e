// Memory of the host machine: aligned allocations, anonymous files where other processes map them
// too, copies that are complete at once.
#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <map>
#include <mutex>
#include <string>
#include <unordered_map>
#include <utility>

#include "core/sync.h"
#include "memory/device_memory.h"

namespace mkernel {
namespace {

class HostCopyChannel final : public CopyChannel {
 public:
  Status copy(void* dst, const void* src, uint64_t bytes) override {
    if (bytes != 0) std::memcpy(dst, src, bytes);  // where both may be null
    return Status::ok();
  }
  Status store_flag(uint32_t* flag, uint32_t value) override {
    store_release<Scope::kSys>(flag, value);
    return Status::ok();
  }
  Result<uint64_t> mark() override { return uint64_t{0}; }
  Result<bool> done(uint64_t) override { return true; }
};

Status failed_call(const std::string& call) {
  return Status(Code::kUnavailable, "host memory: " + call + ": " + std::strerror(errno));
}

/// Pages of a file that has no name, mapped once in a process, whoever imports them: an address
/// then stands for a place, also to tools that go by addresses.
class SharedPages {
 public:
  /// Maps the file, unless it is mapped already, and takes the descriptor. Refuses a file of less
  /// than `bytes`.
  static Result<std::shared_ptr<SharedPages>> map(int descriptor, uint64_t bytes) {
    std::shared_ptr<SharedPages> pages(new SharedPages(descriptor));
    struct stat file {};
    if (fstat(descriptor, &file) != 0) return failed_call("fstat");
    pages->bytes_ = static_cast<uint64_t>(file.st_size);
    if (pages->bytes_ < bytes)
      return Status(Code::kInvalidArgument,
                    "host memory: a descriptor of " + std::to_string(pages->bytes_) +
                        " bytes, not of the " + std::to_string(bytes) + " said");
    static std::mutex mutex;
    static std::map<std::pair<dev_t, ino_t>, std::weak_ptr<SharedPages>> mapped;
    const std::lock_guard lock(mutex);
    std::erase_if(mapped, [](const auto& entry) { return entry.second.expired(); });
    std::weak_ptr<SharedPages>& known = mapped[{file.st_dev, file.st_ino}];
    if (std::shared_ptr<SharedPages> there = known.lock()) return there;
    void* const p = mmap(nullptr, pages->bytes_, PROT_READ | PROT_WRITE, MAP_SHARED, descriptor, 0);
    if (p == MAP_FAILED) return failed_call("mapping " + std::to_string(pages->bytes_) + " bytes");
    pages->data_ = p;
    known = pages;
    return pages;
  }

  SharedPages(const SharedPages&) = delete;
  SharedPages& operator=(const SharedPages&) = delete;
  ~SharedPages() {
    if (data_ != nullptr) (void)munmap(data_, bytes_);
    (void)close(descriptor_);
  }

  void* data() const { return data_; }
  Result<int> duplicate() const {
    const int copy = fcntl(descriptor_, F_DUPFD_CLOEXEC, 0);
    if (copy < 0) return failed_call("duplicating a descriptor");
    return copy;
  }

 private:
  explicit SharedPages(int descriptor) : descriptor_(descriptor) {}

  const int descriptor_;
  uint64_t bytes_ = 0;
  void* data_ = nullptr;
};

class HostMemory final : public DeviceMemory {
 public:
  Result<void*> allocate(uint64_t bytes) override {
    if (bytes > SIZE_MAX - kAlignment) return full(bytes);
    Block block(std::aligned_alloc(kAlignment, (bytes + kAlignment) / kAlignment * kAlignment));
    void* const p = block.get();
    if (p == nullptr) return full(bytes);
    const std::lock_guard lock(mutex_);
    blocks_.emplace(p, std::move(block));
    return p;
  }

  Result<void*> allocate_pinned(uint64_t bytes) override {
    Result<void*> p = allocate(bytes);
    if (p) std::memset(*p, 0, bytes);
    return p;
  }

  void release(void* p) override {
    const std::lock_guard lock(mutex_);
    blocks_.erase(p);
    const auto shared = shared_.find(p);
    if (shared != shared_.end()) shared_.erase(shared);  // once: it may have been imported twice
  }

  Result<void*> allocate_shared(uint64_t bytes) override {
    const int descriptor = memfd_create("mkernel", MFD_CLOEXEC);
    if (descriptor < 0) return failed_call("memfd_create");
    // Real pages, so that a full machine refuses here and does not kill who writes first.
    const int error = posix_fallocate(descriptor, 0, static_cast<off_t>(bytes));
    if (error != 0) {
      (void)close(descriptor);
      return full(bytes);
    }
    return remember(SharedPages::map(descriptor, bytes));
  }

  Result<int> export_shared(void* p) override {
    const std::lock_guard lock(mutex_);
    const auto it = shared_.find(p);
    if (it == shared_.end())
      return Status(Code::kInternal, "host memory: exported what was not allocated to be shared");
    return it->second->duplicate();
  }

  Result<void*> import_shared(int descriptor, uint64_t bytes) override {
    const int own = fcntl(descriptor, F_DUPFD_CLOEXEC, 0);
    if (own < 0) return failed_call("a descriptor from another process");
    return remember(SharedPages::map(own, bytes));
  }

  bool host_accessible() const override { return true; }

  Status upload(void* dst, const void* src, uint64_t bytes) override {
    if (bytes != 0) std::memcpy(dst, src, bytes);  // where both may be null
    return Status::ok();
  }
  Status download(void* dst, const void* src, uint64_t bytes) override {
    if (bytes != 0) std::memcpy(dst, src, bytes);  // where both may be null
    return Status::ok();
  }

  Result<uint64_t> peek(uint64_t* word) override { return load_acquire<Scope::kSys>(word); }

  Result<std::unique_ptr<CopyChannel>> create_channel() override {
    return std::unique_ptr<CopyChannel>(new HostCopyChannel);
  }

 private:
  struct Free {
    void operator()(void* p) const { std::free(p); }
  };
  using Block = std::unique_ptr<void, Free>;
  static constexpr uint64_t kAlignment = 256;

  static Status full(uint64_t bytes) {
    return Status(Code::kUnavailable, "host memory: no " + std::to_string(bytes) + " bytes left");
  }

  Result<void*> remember(Result<std::shared_ptr<SharedPages>> pages) {
    if (!pages) return pages.status();
    void* const p = (*pages)->data();
    const std::lock_guard lock(mutex_);
    shared_.emplace(p, std::move(*pages));
    return p;
  }

  std::mutex mutex_;  // guards all below
  std::unordered_map<void*, Block> blocks_;
  std::unordered_multimap<void*, std::shared_ptr<SharedPages>> shared_;
};

}  // namespace

std::unique_ptr<DeviceMemory> create_host_memory() { return std::make_unique<HostMemory>(); }

}  // namespace mkernel
