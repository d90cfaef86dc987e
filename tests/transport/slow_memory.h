// Memory that the host does not reach in the way of a GPU's: its copies are asynchronous, and made
// only after they have been asked about a few times.
#pragma once
#include <cstring>
#include <deque>
#include <functional>
#include <memory>

#include "core/sync.h"
#include "memory/device_memory.h"

namespace mkernel::test {

class SlowChannel final : public CopyChannel {
 public:
  explicit SlowChannel(uint32_t polls_per_copy) : polls_per_copy_(polls_per_copy) {}

  Status copy(void* dst, const void* src, uint64_t bytes) override {
    return enqueue([=] { std::memcpy(dst, src, bytes); });
  }
  Status store_flag(uint32_t* flag, uint32_t value) override {
    return enqueue([=] { store_release<Scope::kSys>(flag, value); });
  }
  Result<uint64_t> mark() override { return enqueued_; }
  Result<bool> done(uint64_t mark) override {
    if (++polls_ % polls_per_copy_ == 0 && !waiting_.empty()) {
      waiting_.front()();
      waiting_.pop_front();
    }
    return enqueued_ - waiting_.size() >= mark;
  }

 private:
  Status enqueue(std::function<void()> work) {
    waiting_.push_back(std::move(work));
    ++enqueued_;
    return Status::ok();
  }

  const uint32_t polls_per_copy_;
  uint32_t polls_ = 0;
  uint64_t enqueued_ = 0;
  std::deque<std::function<void()>> waiting_;
};

class SlowMemory : public DeviceMemory {
 public:
  explicit SlowMemory(uint32_t polls_per_copy) : polls_per_copy_(polls_per_copy) {}

  bool host_accessible() const override { return false; }
  Result<std::unique_ptr<CopyChannel>> create_channel() override {
    return std::unique_ptr<CopyChannel>(new SlowChannel(polls_per_copy_));
  }

  Result<void*> allocate(uint64_t bytes) override { return host_->allocate(bytes); }
  Result<void*> allocate_pinned(uint64_t bytes) override { return host_->allocate_pinned(bytes); }
  void release(void* p) override { host_->release(p); }
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

 private:
  const uint32_t polls_per_copy_;
  const std::unique_ptr<DeviceMemory> host_ = create_host_memory();
};

}  // namespace mkernel::test
