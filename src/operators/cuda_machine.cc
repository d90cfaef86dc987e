#include <cuda_runtime.h>

#include <cstdlib>

#include "device/launch.h"
#include "memory/cuda_check.h"
#include "memory/cuda_memory.h"
#include "memory/device_scope.h"
#include "operators/machine.h"

namespace mkernel {
namespace {

class CudaStreamImpl : public detail::StreamImpl {
 public:
  explicit CudaStreamImpl(cudaStream_t stream) : stream_(stream) {}
  ~CudaStreamImpl() override { (void)cudaStreamDestroy(stream_); }
  CudaStreamImpl(const CudaStreamImpl&) = delete;
  CudaStreamImpl& operator=(const CudaStreamImpl&) = delete;
  StreamHandle handle() const override { return stream_; }

 private:
  cudaStream_t stream_;
};

class CudaMachine : public Machine {
 public:
  CudaMachine(int device, uint32_t blocks, std::unique_ptr<DeviceMemory> memory)
      : device_(device), blocks_(blocks), memory_(std::move(memory)) {}

  MachineShape shape() const override {
    const KernelShape kernel = kernel_shape();
    // Eight SMs fill a direction of NVLink (H200, 2026-11-29: 8 push 350 GB/s of 392).
    return {.max_blocks = blocks_,
            .blocks = blocks_,
            .comm_blocks = std::min(8u, std::max(1u, blocks_ / 2)),
            .tile_m = kernel.tile_m,
            .tile_n = kernel.tile_n,
            .band = kBandRows / kernel.tile_m,
            .chunk_bytes = 256 << 10};
  }
  DeviceMemory& memory() override { return *memory_; }

  Result<std::unique_ptr<detail::StreamImpl>> create_stream() override {
    const DeviceScope scope(device_);
    MK_CUDA_CHECK(scope.entered());
    cudaStream_t stream = nullptr;
    MK_CUDA_CHECK(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
    return std::unique_ptr<detail::StreamImpl>(std::make_unique<CudaStreamImpl>(stream));
  }
  Status synchronize(StreamHandle stream) override {
    MK_CUDA_CHECK(cudaStreamSynchronize(static_cast<cudaStream_t>(stream)));
    return Status::ok();
  }
  Status launch(const AllGatherGemmWork& op, StreamHandle stream) override {
    const DeviceScope scope(device_);
    MK_CUDA_CHECK(scope.entered());
    return launch_on_cuda(op, stream);
  }

 private:
  /// Rows of A per band of the tile order (H200: best of 512 to 4096 at 8192-class shapes).
  static constexpr uint32_t kBandRows = 2048;

  const int device_;
  const uint32_t blocks_;
  std::unique_ptr<DeviceMemory> memory_;
};

}  // namespace

Result<std::unique_ptr<Machine>> create_cuda_machine(int device, int ranks_on_device) {
  const DeviceScope scope(device);
  MK_CUDA_CHECK(scope.entered());
  cudaDeviceProp properties{};
  MK_CUDA_CHECK(cudaGetDeviceProperties(&properties, device));
  const std::string who = "GPU " + std::to_string(device) + " (" + properties.name + ")";
  if (properties.major != 9)
    return Status(Code::kUnavailable, who + " has compute capability " +
                                          std::to_string(properties.major) + "." +
                                          std::to_string(properties.minor) + ": 9.0 is supported");
  const auto cluster = static_cast<int>(kernel_shape().cluster);
  const int blocks = properties.multiProcessorCount / ranks_on_device / cluster * cluster;
  if (blocks == 0)
    return Status(Code::kUnavailable,
                  who + " cannot be shared by " + std::to_string(ranks_on_device) + " ranks: at most " +
                      std::to_string(properties.multiProcessorCount / cluster));
  MK_RETURN_IF_ERROR(load_kernels());
  auto memory = create_cuda_memory(device);
  if (!memory) return memory.status();
  return std::unique_ptr<Machine>(std::make_unique<CudaMachine>(
      device, static_cast<uint32_t>(blocks), std::move(memory.value())));
}

int num_cuda_devices() {
  // Several ranks on one GPU need a hardware queue per stream: with shared queues, a launch can
  // stand behind one that waits for it. The driver reads this once, before the first call.
  (void)setenv("CUDA_DEVICE_MAX_CONNECTIONS", "32", /*overwrite=*/0);
  int count = 0;
  return cudaGetDeviceCount(&count) == cudaSuccess ? count : 0;
}

}  // namespace mkernel
