#include "memory/cuda_copies.h"

#include <cudaTypedefs.h>

#include <algorithm>
#include <utility>

#include "core/sync.h"
#include "memory/cuda_check.h"
#include "memory/cuda_driver.h"
#include "memory/device_scope.h"

namespace mkernel {
namespace {

constexpr uint64_t kBounceBytes = uint64_t{1} << 20;  // more would hardly be faster

/// Nothing here synchronises the device, so it makes progress while persistent kernels spin; and
/// nobody asks the driver whether copies are done: polling threads keep its lock from those that
/// have something to enqueue. The stream says it in pinned memory.
class CudaCopyChannel final : public CopyChannel {
 public:
  static Result<std::unique_ptr<CopyChannel>> create(CudaCopies& copies) {
    const DeviceScope scope(copies.device());
    MK_CUDA_CHECK(scope.entered());
    std::unique_ptr<CudaCopyChannel> channel(new CudaCopyChannel(copies));
    MK_CUDA_CHECK(cudaHostAlloc(&channel->done_word_, sizeof(uint32_t), cudaHostAllocDefault));
    *channel->done_word_ = 0;
    MK_RETURN_IF_ERROR(find_driver_function("cuStreamWriteValue32", 11070, &channel->write_value_));
    return std::unique_ptr<CopyChannel>(std::move(channel));
  }

  ~CudaCopyChannel() override { (void)cudaFreeHost(done_word_); }
  CudaCopyChannel(const CudaCopyChannel&) = delete;
  CudaCopyChannel& operator=(const CudaCopyChannel&) = delete;

  Status copy(void* dst, const void* src, uint64_t bytes) override {
    const DeviceScope scope(copies_.device());
    MK_CUDA_CHECK(scope.entered());
    return copies_.copy(dst, src, bytes);
  }

  Status store_flag(uint32_t* flag, uint32_t value) override { return write(flag, value); }

  Result<uint64_t> mark() override {
    MK_RETURN_IF_ERROR(write(done_word_, static_cast<uint32_t>(last_mark_ + 1)));
    return ++last_mark_;
  }

  Result<bool> done(uint64_t mark) override {
    done_mark_ += load_acquire<Scope::kSys>(done_word_) - static_cast<uint32_t>(done_mark_);
    return done_mark_ >= mark;
  }

 private:
  explicit CudaCopyChannel(CudaCopies& copies) : copies_(copies) {}

  Status write(uint32_t* word, uint32_t value) {
    const DeviceScope scope(copies_.device());
    MK_CUDA_CHECK(scope.entered());
    // The default flags put a system-wide barrier between earlier work of the stream and the store.
    return driver_status("cuStreamWriteValue32",
                         write_value_(copies_.stream(), reinterpret_cast<CUdeviceptr>(word), value,
                                      CU_STREAM_WRITE_VALUE_DEFAULT));
  }

  CudaCopies& copies_;
  PFN_cuStreamWriteValue32_v11070 write_value_ = nullptr;
  uint32_t* done_word_ = nullptr;  // pinned; writer: the stream, the low bits of done marks
  uint64_t last_mark_ = 0;
  uint64_t done_mark_ = 0;  // as far as was seen
};

}  // namespace

Result<CudaStream> create_cuda_stream() {
  cudaStream_t stream = nullptr;
  MK_CUDA_CHECK(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
  return CudaStream(stream);
}

Result<std::unique_ptr<CudaCopies>> CudaCopies::create(int device) {
  const DeviceScope scope(device);
  MK_CUDA_CHECK(scope.entered());
  Result<CudaStream> stream = create_cuda_stream();
  if (!stream) return stream.status();
  std::unique_ptr<CudaCopies> copies(new CudaCopies(device, std::move(*stream)));
  // Before any kernel runs: to pin memory waits for the device.
  MK_CUDA_CHECK(cudaHostAlloc(&copies->bounce_, kBounceBytes, cudaHostAllocDefault));
  return copies;
}

CudaCopies::~CudaCopies() {
  const DeviceScope scope(device_);
  if (bounce_ != nullptr) (void)cudaFreeHost(bounce_);
}

Status CudaCopies::copy(void* dst, const void* src, uint64_t bytes) {
  const Result<bool> stays = on_one_device(dst, src);
  if (!stays) return stays.status();
  if (!*stays) {
    MK_CUDA_CHECK(cudaMemcpyAsync(dst, src, bytes, cudaMemcpyDefault, stream()));
    return Status::ok();
  }
  const std::lock_guard lock(mutex_);
  for (uint64_t at = 0; at < bytes; at += kBounceBytes) {
    const uint64_t part = std::min(kBounceBytes, bytes - at);
    MK_CUDA_CHECK(cudaMemcpyAsync(bounce_, static_cast<const char*>(src) + at, part,
                                  cudaMemcpyDeviceToHost, stream()));
    MK_CUDA_CHECK(cudaMemcpyAsync(static_cast<char*>(dst) + at, bounce_, part,
                                  cudaMemcpyHostToDevice, stream()));
  }
  return Status::ok();
}

Result<bool> CudaCopies::on_one_device(const void* a, const void* b) {
  cudaPointerAttributes at_a{}, at_b{};
  MK_CUDA_CHECK(cudaPointerGetAttributes(&at_a, a));
  MK_CUDA_CHECK(cudaPointerGetAttributes(&at_b, b));
  return at_a.type == cudaMemoryTypeDevice && at_b.type == cudaMemoryTypeDevice &&
         at_a.device == at_b.device;
}

Result<std::unique_ptr<CopyChannel>> create_copy_channel(CudaCopies& copies) {
  return CudaCopyChannel::create(copies);
}

}  // namespace mkernel
