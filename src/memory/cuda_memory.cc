#include "memory/cuda_memory.h"

#include <cudaTypedefs.h>
#include <unistd.h>

#include <algorithm>
#include <cctype>
#include <cstring>
#include <mutex>
#include <string>
#include <unordered_map>
#include <vector>

#include "core/maths.h"
#include "memory/cuda_check.h"
#include "memory/cuda_copies.h"
#include "memory/cuda_driver.h"
#include "memory/cuda_shared.h"
#include "memory/device_scope.h"
#include "memory/nic_writes.h"

namespace mkernel {
namespace {

class CudaMemory final : public DeviceMemory {
 public:
  static Result<std::unique_ptr<DeviceMemory>> create(int device) {
    const DeviceScope scope(device);
    MK_CUDA_CHECK(scope.entered());
    MK_RETURN_IF_ERROR(reach_peers(device));
    Result<CudaStream> stream = create_cuda_stream();
    if (!stream) return stream.status();
    // For kernels of the device itself; what "none" would take is not done anywhere.
    int ordering = cudaGPUDirectRDMAWritesOrderingNone;
    MK_CUDA_CHECK(
        cudaDeviceGetAttribute(&ordering, cudaDevAttrGPUDirectRDMAWritesOrdering, device));
    return std::unique_ptr<DeviceMemory>(
        new CudaMemory(device, std::move(*stream), mkernel::orders_nic_writes(ordering)));
  }

  ~CudaMemory() override {
    for (const auto& [p, kind] : blocks_) free(p, kind);
  }
  CudaMemory(const CudaMemory&) = delete;
  CudaMemory& operator=(const CudaMemory&) = delete;

  Result<void*> allocate(uint64_t bytes) override {
    const DeviceScope scope(device_);
    MK_CUDA_CHECK(scope.entered());
    void* p = nullptr;
    const cudaError_t error = cudaMalloc(&p, bytes);
    if (error == cudaErrorMemoryAllocation) return full(bytes);
    MK_CUDA_CHECK(error);
    return remember(p, Kind::kDevice);
  }

  Result<void*> allocate_pinned(uint64_t bytes) override {
    const DeviceScope scope(device_);
    MK_CUDA_CHECK(scope.entered());
    void* p = nullptr;
    MK_CUDA_CHECK(cudaHostAlloc(&p, bytes, cudaHostAllocPortable | cudaHostAllocMapped));
    std::memset(p, 0, bytes);
    return remember(p, Kind::kPinned);
  }

  void release(void* p) override {
    Kind kind = Kind::kDevice;
    {
      const std::lock_guard lock(mutex_);
      if (shared_.erase(p) > 0) return;
      const auto it = blocks_.find(p);
      if (it == blocks_.end()) return;
      kind = it->second;
      blocks_.erase(it);
    }
    free(p, kind);
  }

  Result<void*> allocate_shared(uint64_t bytes) override {
    const DeviceScope scope(device_);
    MK_CUDA_CHECK(scope.entered());
    return remember(CudaShared::create(device_, bytes));
  }

  Result<int> export_shared(void* p) override {
    const std::lock_guard lock(mutex_);
    const auto it = shared_.find(p);
    if (it == shared_.end())
      return Status(Code::kInternal, "device memory: exported what was not allocated to be shared");
    return it->second.export_descriptor();
  }

  Result<void*> import_shared(int descriptor, uint64_t bytes) override {
    const DeviceScope scope(device_);
    MK_CUDA_CHECK(scope.entered());
    return remember(CudaShared::import(device_, descriptor, bytes));
  }

  bool host_accessible() const override { return false; }

  Result<DmaBuf> export_dmabuf(void* p, uint64_t bytes) override {
    const DeviceScope scope(device_);
    MK_CUDA_CHECK(scope.entered());
    PFN_cuMemGetHandleForAddressRange_v11070 get_handle = nullptr;
    MK_RETURN_IF_ERROR(find_driver_function("cuMemGetHandleForAddressRange", 11070, &get_handle));
    // Of whole pages: allocations of a device begin and end with one, or share it.
    const auto page = static_cast<uint64_t>(sysconf(_SC_PAGESIZE));
    const auto address = reinterpret_cast<uint64_t>(p);
    DmaBuf buffer{.offset = address % page};
    MK_RETURN_IF_ERROR(driver_status(
        "cuMemGetHandleForAddressRange",
        get_handle(&buffer.descriptor, address - buffer.offset,
                   round_up(buffer.offset + bytes, page), CU_MEM_RANGE_HANDLE_TYPE_DMA_BUF_FD, 0)));
    return buffer;
  }

  bool orders_nic_writes() const override { return orders_nic_writes_; }

  PciPlace pci_place() const override {
    int num_devices = 0;
    if (cudaGetDeviceCount(&num_devices) != cudaSuccess) return {};
    PciPlace place{.own = static_cast<size_t>(device_)};
    for (int device = 0; device < num_devices; ++device) {
      char address[32] = {};
      if (cudaDeviceGetPCIBusId(address, sizeof address, device) != cudaSuccess) return {};
      // As sysfs spells it.
      std::string& gpu = place.gpus.emplace_back(address);
      std::ranges::transform(gpu, gpu.begin(), [](unsigned char c) { return std::tolower(c); });
    }
    return place;
  }

  Status upload(void* dst, const void* src, uint64_t bytes) override {
    return copy_and_wait(dst, src, bytes);
  }
  Status download(void* dst, const void* src, uint64_t bytes) override {
    return copy_and_wait(dst, src, bytes);
  }

  Result<uint64_t> peek(uint64_t* word) override {
    uint64_t value = 0;
    MK_RETURN_IF_ERROR(copy_and_wait(&value, word, sizeof value));
    return value;
  }

  Result<std::unique_ptr<CopyChannel>> create_channel() override {
    const std::lock_guard lock(mutex_);
    const size_t turn = num_channels_++ % kNumCopyStreams;
    if (copies_.size() <= turn) {
      auto copies = CudaCopies::create(device_);
      if (!copies) return copies.status();
      copies_.push_back(std::move(*copies));
    }
    return create_copy_channel(*copies_[turn]);
  }

 private:
  enum class Kind { kDevice, kPinned };

  // A device has 32 hardware queues for streams, and a stream behind another one's kernel in the
  // same queue would wait for it. The kernels of up to 24 ranks need most of them.
  static constexpr size_t kNumCopyStreams = 4;

  CudaMemory(int device, CudaStream stream, bool orders_nic_writes)
      : device_(device), stream_(std::move(stream)), orders_nic_writes_(orders_nic_writes) {}

  static Status reach_peers(int device) {
    int num_devices = 0;
    MK_CUDA_CHECK(cudaGetDeviceCount(&num_devices));
    for (int peer = 0; peer < num_devices; ++peer) {
      int reachable = 0;  // stays 0 for the device itself
      if (peer != device) MK_CUDA_CHECK(cudaDeviceCanAccessPeer(&reachable, device, peer));
      if (reachable == 0) continue;
      const cudaError_t error = cudaDeviceEnablePeerAccess(peer, 0);
      if (error == cudaErrorPeerAccessAlreadyEnabled) {
        (void)cudaGetLastError();
        continue;
      }
      MK_CUDA_CHECK(error);
    }
    return Status::ok();
  }

  // On a stream of its own: the default stream would wait for, and hold up, running kernels.
  Status copy_and_wait(void* dst, const void* src, uint64_t bytes) {
    const DeviceScope scope(device_);
    MK_CUDA_CHECK(scope.entered());
    MK_CUDA_CHECK(cudaMemcpyAsync(dst, src, bytes, cudaMemcpyDefault, stream_.get()));
    MK_CUDA_CHECK(cudaStreamSynchronize(stream_.get()));
    return Status::ok();
  }

  void* remember(void* p, Kind kind) {
    const std::lock_guard lock(mutex_);
    blocks_.emplace(p, kind);
    return p;
  }

  Result<void*> remember(Result<CudaShared> shared) {
    if (!shared) return shared.status();
    void* const p = shared->data();
    const std::lock_guard lock(mutex_);
    shared_.emplace(p, std::move(*shared));
    return p;
  }

  void free(void* p, Kind kind) const {
    const DeviceScope scope(device_);
    (void)(kind == Kind::kDevice ? cudaFree(p) : cudaFreeHost(p));
  }

  Status full(uint64_t bytes) const {
    (void)cudaGetLastError();
    return Status(Code::kUnavailable, "device " + std::to_string(device_) + ": no " +
                                          std::to_string(bytes) + " bytes left");
  }

  const int device_;
  const CudaStream stream_;
  const bool orders_nic_writes_;
  std::mutex mutex_;  // guards all below
  std::unordered_map<void*, Kind> blocks_;
  std::unordered_map<void*, CudaShared> shared_;
  std::vector<std::unique_ptr<CudaCopies>> copies_;
  size_t num_channels_ = 0;
};

}  // namespace

Result<std::unique_ptr<DeviceMemory>> create_cuda_memory(int device) {
  return CudaMemory::create(device);
}

}  // namespace mkernel
