// Memory of the host machine: plain aligned allocations, copies that are complete at once.
#include <cstdlib>
#include <cstring>
#include <mutex>
#include <string>
#include <unordered_map>

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
  }

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

  std::mutex mutex_;
  std::unordered_map<void*, Block> blocks_;
};

}  // namespace

std::unique_ptr<DeviceMemory> create_host_memory() { return std::make_unique<HostMemory>(); }

}  // namespace mkernel
