// The GPU as a device of the application: kernels of reference_kernel.cu, times by events.
#if defined(MK_WITH_CUDA)
#include "cuda_device.h"

#include <functional>
#include <vector>

#include "core/sync.h"
#include "cuda_check.h"
#include "reference_kernel.h"

namespace mkernel::app {
namespace {

cudaStream_t as_cuda(StreamHandle stream) { return static_cast<cudaStream_t>(stream); }

struct FreeDevice {
  void operator()(void* p) const { (void)cudaFree(p); }  // nothing to do about a failure here
};
struct FreePinned {
  void operator()(void* p) const { (void)cudaFreeHost(p); }
};
using DeviceMemory = std::unique_ptr<void, FreeDevice>;

Result<DeviceMemory> allocate(uint64_t bytes) {
  void* p = nullptr;
  MK_RETURN_IF_ERROR(check_cuda(cudaMalloc(&p, bytes), "cudaMalloc"));
  return DeviceMemory(p);
}

class CudaGate final : public StartGate {
 public:
  explicit CudaGate(uint32_t* word) : word_(word) {}
  Status wait(StreamHandle stream) override {
    return launch_gate(word_.get(), opened_ + 1, stream);
  }
  void open() override { store_release<Scope::kSys>(word_.get(), ++opened_); }

 private:
  std::unique_ptr<uint32_t, FreePinned> word_;
  uint32_t opened_ = 0;
};

class CudaDevice final : public Device {
 public:
  /// `anchor` is memory of this rank: it tells on which GPU the rank lives.
  explicit CudaDevice(Buffer anchor) : anchor_(std::move(anchor)) {}

  Status fill_normal(const Matrix& out, DType dtype, const ArrayKey& key,
                     StreamHandle stream) override {
    MK_RETURN_IF_ERROR(use_device_of(anchor_.data()));
    return launch_fill_normal(out, dtype, key, stream);
  }

  Status fill_nan(const Matrix& out, DType dtype, StreamHandle stream) override {
    MK_RETURN_IF_ERROR(use_device_of(anchor_.data()));
    return launch_fill_bits(out, quiet_nan(dtype), stream);
  }

  Result<Worst> verify(const Product& product, StreamHandle stream) override {
    return worst_of(num_verify_partials(product), stream,
                    [&](Worst* partial) { return launch_verify(product, partial, stream); });
  }

  Result<Worst> compare(const Matrix& got, const Matrix& want, DType dtype,
                        StreamHandle stream) override {
    return worst_of(num_compare_partials(want), stream, [&](Worst* partial) {
      return launch_compare(got, want, dtype, partial, stream);
    });
  }

  Status prepare_timing(StreamHandle stream) override {
    MK_RETURN_IF_ERROR(use_device_of(anchor_.data()));
    int device = 0, l2_bytes = 0;
    MK_RETURN_IF_ERROR(check_cuda(cudaGetDevice(&device), "cudaGetDevice"));
    MK_RETURN_IF_ERROR(check_cuda(cudaDeviceGetAttribute(&l2_bytes, cudaDevAttrL2CacheSize, device),
                                  "cudaDeviceGetAttribute"));
    flush_bytes_ = 2 * static_cast<uint64_t>(l2_bytes);
    Result<DeviceMemory> memory = allocate(flush_bytes_);
    if (!memory) return memory.status();
    flush_ = std::move(memory).value();
    MK_RETURN_IF_ERROR(create_event(start_));
    MK_RETURN_IF_ERROR(create_event(stop_));
    MK_RETURN_IF_ERROR(check_cuda(cudaMemsetAsync(flush_.get(), 0, flush_bytes_, as_cuda(stream)),
                                  "cudaMemsetAsync"));
    return launch_gate(static_cast<uint32_t*>(flush_.get()), 0, stream);  // open: only to load it
  }

  Status start(StreamHandle stream, StartGate* gate) override {
    MK_RETURN_IF_ERROR(use_device_of(anchor_.data()));
    MK_RETURN_IF_ERROR(check_cuda(cudaMemsetAsync(flush_.get(), 0, flush_bytes_, as_cuda(stream)),
                                  "cudaMemsetAsync"));
    if (gate != nullptr) MK_RETURN_IF_ERROR(gate->wait(stream));
    return check_cuda(cudaEventRecord(start_.get(), as_cuda(stream)), "cudaEventRecord");
  }

  Status stop(StreamHandle stream) override {
    MK_RETURN_IF_ERROR(use_device_of(anchor_.data()));
    return check_cuda(cudaEventRecord(stop_.get(), as_cuda(stream)), "cudaEventRecord");
  }

  Result<double> elapsed_us() override {
    float ms = 0;
    MK_RETURN_IF_ERROR(
        check_cuda(cudaEventElapsedTime(&ms, start_.get(), stop_.get()), "cudaEventElapsedTime"));
    return 1e3 * static_cast<double>(ms);
  }

 private:
  Result<Worst> worst_of(int64_t num_partials, StreamHandle stream,
                         const std::function<Status(Worst*)>& launch) {
    Worst worst;
    if (num_partials == 0) return worst;
    MK_RETURN_IF_ERROR(use_device_of(anchor_.data()));
    std::vector<Worst> partial(static_cast<size_t>(num_partials));
    const uint64_t bytes = partial.size() * sizeof(Worst);
    Result<DeviceMemory> memory = allocate(bytes);
    if (!memory) return memory.status();
    MK_RETURN_IF_ERROR(launch(static_cast<Worst*>(memory.value().get())));
    MK_RETURN_IF_ERROR(check_cuda(cudaMemcpyAsync(partial.data(), memory.value().get(), bytes,
                                                  cudaMemcpyDeviceToHost, as_cuda(stream)),
                                  "cudaMemcpyAsync"));
    MK_RETURN_IF_ERROR(check_cuda(cudaStreamSynchronize(as_cuda(stream)), "cudaStreamSynchronize"));
    for (const Worst& w : partial) worst.merge(w);
    return worst;
  }

  Buffer anchor_;
  DeviceMemory flush_;
  uint64_t flush_bytes_ = 0;
  Event start_;
  Event stop_;
};

int attribute(cudaDeviceAttr name, int device) {
  int value = 0;
  (void)cudaDeviceGetAttribute(&value, name, device);  // 0 stands for "not told"
  return value;
}

Gpu describe_gpu(int device, int count) {
  cudaDeviceProp properties{};
  Gpu gpu;
  if (cudaGetDeviceProperties(&properties, device) != cudaSuccess) return gpu;
  gpu.name = properties.name;
  gpu.capability = "sm_" + std::to_string(10 * properties.major + properties.minor);
  gpu.num_sms = properties.multiProcessorCount;
  gpu.memory_bytes = properties.totalGlobalMem;
  gpu.l2_bytes = static_cast<uint64_t>(properties.l2CacheSize);
  gpu.max_sm_mhz = attribute(cudaDevAttrClockRate, device) / 1000;
  for (int peer = 0; peer < count; ++peer) {
    int reaches = 0;
    if (peer != device && cudaDeviceCanAccessPeer(&reaches, device, peer) == cudaSuccess && reaches)
      gpu.peers.push_back(peer);
  }
  return gpu;
}

}  // namespace

Result<std::unique_ptr<Device>> create_cuda_device(Context& context) {
  Result<Buffer> anchor = context.allocate(256);
  if (!anchor) return anchor.status();
  return std::unique_ptr<Device>(std::make_unique<CudaDevice>(std::move(anchor).value()));
}

Result<std::unique_ptr<StartGate>> create_cuda_gate() {
  void* word = nullptr;
  MK_RETURN_IF_ERROR(check_cuda(
      cudaHostAlloc(&word, sizeof(uint32_t), cudaHostAllocPortable | cudaHostAllocMapped),
      "cudaHostAlloc"));
  *static_cast<uint32_t*>(word) = 0;
  return std::unique_ptr<StartGate>(std::make_unique<CudaGate>(static_cast<uint32_t*>(word)));
}

Result<std::vector<Gpu>> find_gpus() {
  int count = 0;
  const cudaError_t error = cudaGetDeviceCount(&count);
  if (error == cudaErrorInsufficientDriver) {
    int driver = 0;
    const bool absent = cudaDriverGetVersion(&driver) != cudaSuccess || driver == 0;
    return Status(Code::kUnavailable, absent ? "cuda: no driver on this machine"
                                             : "cuda: the driver is older than this build");
  }
  if (error != cudaSuccess || count == 0)
    return Status(Code::kUnavailable,
                  std::string("cuda: ") +
                      cudaGetErrorString(error == cudaSuccess ? cudaErrorNoDevice : error));
  std::vector<Gpu> gpus;
  gpus.reserve(static_cast<size_t>(count));
  for (int device = 0; device < count; ++device) gpus.push_back(describe_gpu(device, count));
  return gpus;
}

}  // namespace mkernel::app
#endif
