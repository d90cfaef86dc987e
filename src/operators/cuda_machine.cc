#include <cuda_runtime.h>

#include <algorithm>
#include <cstdlib>

#include "device/launch.h"
#include "device/push_engine.h"
#include "device/scratch_pool.h"
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

/// What the ranks on one GPU share.
struct SharedDevice {
  int device;
  uint32_t blocks_per_rank;
  std::string id;
  std::unique_ptr<DeviceMemory> memory;
  std::unique_ptr<ScratchPool> pool;
};

class CudaMachine : public Machine {
 public:
  CudaMachine(std::shared_ptr<SharedDevice> on, std::unique_ptr<PushEngine> engine)
      : on_(std::move(on)), engine_(std::move(engine)) {}

  MachineShape shape() const override {
    const KernelShape kernel = kernel_shape();
    const auto [wide, narrow] = kernel.tile_n;
    // Eight SMs fill a direction of NVLink (H200, 2026-11-29: 8 push 350 GB/s of 392).
    return {.max_blocks = on_->blocks_per_rank,
            .blocks = on_->blocks_per_rank,
            .comm_blocks = std::min(8u, std::max(1u, on_->blocks_per_rank / 2)),
            .tile_m = kernel.tile_m,
            .tile_widths = {{{wide, kStepCost}, {narrow, kHalfWidthStepCost}}},
            .band = kBandRows / kernel.tile_m,
            .chunk_bytes = 256 << 10,
            .copy_engines = engine_ != nullptr,
            .pad_rows = kernel.pad_rows,
            .pad_cols = kernel.pad_cols};
  }
  DeviceMemory& memory() override { return *on_->memory; }
  std::string device_id() const override { return on_->id; }

  Result<std::unique_ptr<detail::StreamImpl>> create_stream() override {
    const DeviceScope scope(on_->device);
    MK_CUDA_CHECK(scope.entered());
    cudaStream_t stream = nullptr;
    MK_CUDA_CHECK(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
    return std::unique_ptr<detail::StreamImpl>(std::make_unique<CudaStreamImpl>(stream));
  }
  Status synchronize(StreamHandle stream) override {
    MK_CUDA_CHECK(cudaStreamSynchronize(static_cast<cudaStream_t>(stream)));
    return Status::ok();
  }
  Status launch(const AllGatherGemmWork& op, std::span<const EnginePush> pushes,
                StreamHandle stream) override {
    const DeviceScope scope(on_->device);
    MK_CUDA_CHECK(scope.entered());
    return launch_on_cuda(op, pushes, {*on_->pool, engine_.get()}, stream);
  }
  Status launch(const GemmReduceWork& op, StreamHandle stream) override {
    const DeviceScope scope(on_->device);
    MK_CUDA_CHECK(scope.entered());
    return launch_on_cuda(op, {*on_->pool, engine_.get()}, stream);
  }

 private:
  /// Rows of A per band of the tile order (H200, gemm_core bench: best or equal of 1024 to
  /// 3072 at 8192-class shapes).
  static constexpr uint32_t kBandRows = 2048;

  std::shared_ptr<SharedDevice> on_;
  std::unique_ptr<PushEngine> engine_;  // null if there is none
};

/// Blocks for each of `num_ranks` ranks on a GPU.
Result<uint32_t> blocks_per_rank(int device, int num_ranks) {
  cudaDeviceProp properties{};
  MK_CUDA_CHECK(cudaGetDeviceProperties(&properties, device));
  const std::string who = "GPU " + std::to_string(device) + " (" + properties.name + ")";
  if (properties.major != 9)
    return Status(Code::kUnavailable, who + " has compute capability " +
                                          std::to_string(properties.major) + "." +
                                          std::to_string(properties.minor) + ": 9.0 is supported");
  // Each rank's stream needs a hardware queue of its own, or launches that wait for each other can
  // stand in one; there are 32, and copies use some.
  constexpr int kMaxRanks = 24;
  if (num_ranks > kMaxRanks)
    return Status(Code::kUnavailable, who + " would be shared by " + std::to_string(num_ranks) +
                                          " ranks: at most " + std::to_string(kMaxRanks));
  const auto cluster = static_cast<int>(kernel_shape().cluster);
  return static_cast<uint32_t>(properties.multiProcessorCount / num_ranks / cluster * cluster);
}

/// "GPU 0123..." with the number that the GPU was made with.
Result<std::string> id_of(int device) {
  cudaDeviceProp properties{};
  MK_CUDA_CHECK(cudaGetDeviceProperties(&properties, device));
  std::string id = "GPU ";
  for (const char byte : properties.uuid.bytes) {
    constexpr char kDigits[] = "0123456789abcdef";
    const auto value = static_cast<unsigned char>(byte);
    id += {kDigits[value >> 4], kDigits[value & 15]};
  }
  return id;
}

/// Ranks of a node write into each other's memory, so all GPUs must reach each other.
Status check_peers(int devices) {
  for (int device = 0; device < devices; ++device)
    for (int peer = 0; peer < devices; ++peer) {
      int reachable = 1;
      if (peer != device) MK_CUDA_CHECK(cudaDeviceCanAccessPeer(&reachable, device, peer));
      if (reachable == 0)
        return Status(Code::kUnavailable, "GPU " + std::to_string(device) +
                                              " has no peer access to GPU " + std::to_string(peer));
    }
  return Status::ok();
}

/// Machines for `num_ranks` ranks that share a GPU. `alone`: no rank of the cluster shares its GPU.
/// All ranks must agree on whether there are copy engines: they change how slots are used.
Result<Machines> create_on_device(int device, int num_ranks, bool alone) {
  const DeviceScope scope(device);
  MK_CUDA_CHECK(scope.entered());
  auto blocks = blocks_per_rank(device, num_ranks);
  if (!blocks) return blocks.status();
  const Result<std::string> id = id_of(device);
  if (!id) return id.status();
  MK_RETURN_IF_ERROR(load_kernels());
  auto memory = create_cuda_memory(device);
  if (!memory) return memory.status();
  auto pool = ScratchPool::create();
  if (!pool) return pool.status();
  const auto shared = std::make_shared<SharedDevice>(
      SharedDevice{device, *blocks, *id, std::move(memory.value()), std::move(pool.value())});
  // Only for a rank that has the GPU to itself: a copy within a GPU would need SMs that the kernels
  // have, and the streams are needed for the kernels.
  std::unique_ptr<PushEngine> engine;
  if (alone) {
    auto created = PushEngine::create();
    if (!created) return created.status();
    engine = std::move(created.value());
  }
  Machines machines;
  for (int i = 0; i < num_ranks; ++i)
    machines.push_back(std::make_unique<CudaMachine>(shared, std::move(engine)));
  return machines;
}

}  // namespace

Result<Machines> create_cuda_machines(int num_ranks) {
  const int devices = num_cuda_devices();
  if (devices == 0) return Status(Code::kUnavailable, "device = cuda: no GPU on this machine");
  MK_RETURN_IF_ERROR(check_peers(std::min(devices, num_ranks)));
  Machines machines(static_cast<size_t>(num_ranks));
  for (int device = 0; device < std::min(devices, num_ranks); ++device) {
    auto here = create_on_device(device, (num_ranks - device + devices - 1) / devices,
                                 num_ranks <= devices);
    if (!here) return here.status();
    for (size_t i = 0; i < here->size(); ++i)
      machines[static_cast<size_t>(device) + i * static_cast<size_t>(devices)] =
          std::move((*here)[i]);
  }
  return machines;
}

Result<Machines> create_cuda_machine_of_process(int index) {
  const int devices = num_cuda_devices();
  if (devices == 0) return Status(Code::kUnavailable, "device = cuda: no GPU on this machine");
  return create_on_device(index % devices, 1, true);
}

int num_cuda_devices() {
  // Several ranks on one GPU need a hardware queue per stream: with shared queues, a launch can
  // stand behind one that waits for it. The driver reads this once, before the first call.
  (void)setenv("CUDA_DEVICE_MAX_CONNECTIONS", "32", /*overwrite=*/0);
  int count = 0;
  return cudaGetDeviceCount(&count) == cudaSuccess ? count : 0;
}

}  // namespace mkernel
