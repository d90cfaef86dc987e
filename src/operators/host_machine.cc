#include "host/launch.h"
#include "operators/machine.h"

namespace mkernel {
namespace {

class HostStreamImpl : public detail::StreamImpl {
 public:
  StreamHandle handle() const override { return const_cast<HostStream*>(&stream_); }

 private:
  HostStream stream_;
};

Status no_stream() {
  return Status(Code::kInvalidArgument,
                "stream is null: the host machine takes what Stream::handle() gives");
}

HostStream& stream_of(StreamHandle handle) { return *static_cast<HostStream*>(handle); }

class HostMachine : public Machine {
 public:
  // Small tiles and few blocks: a test's matrices have many tiles, and a computer of two cores
  // carries a cluster of sixteen ranks. Two widths, so that tests run what chooses between them.
  MachineShape shape() const override {
    return {.max_blocks = 64,
            .blocks = 3,
            .comm_blocks = 1,
            .tile_m = 16,
            .tile_widths = {{{32, kStepCost}, {16, kHalfWidthStepCost}}},
            .band = 4,
            .chunk_bytes = 16 << 10,
            .copy_engines = true,
            .pad_rows = 1,
            .pad_cols = 1};
  }
  DeviceMemory& memory() override { return *memory_; }
  std::string device_id() const override { return {}; }
  Result<std::unique_ptr<detail::StreamImpl>> create_stream() override {
    return std::unique_ptr<detail::StreamImpl>(std::make_unique<HostStreamImpl>());
  }
  Status synchronize(StreamHandle stream) override {
    if (stream == nullptr) return no_stream();
    stream_of(stream).synchronize();
    return Status::ok();
  }
  Status launch(const AllGatherGemmWork& op, std::span<const EnginePush> pushes,
                StreamHandle stream) override {
    if (stream == nullptr) return no_stream();
    launch_on_host(op, pushes, stream_of(stream));
    return Status::ok();
  }
  Status launch(const GemmReduceWork& op, StreamHandle stream) override {
    if (stream == nullptr) return no_stream();
    launch_on_host(op, stream_of(stream));
    return Status::ok();
  }

 private:
  std::unique_ptr<DeviceMemory> memory_ = create_host_memory();
};

}  // namespace

Machines create_host_machines(int num_ranks) {
  Machines machines;
  for (int rank = 0; rank < num_ranks; ++rank) machines.push_back(std::make_unique<HostMachine>());
  return machines;
}

#if !defined(MK_WITH_CUDA)
Result<Machines> create_cuda_machines(int) {
  return Status(Code::kUnsupported, "device = cuda: this build of mkernel is without CUDA");
}

Result<Machines> create_cuda_machine_of_process(int) { return create_cuda_machines(1); }

int num_cuda_devices() { return 0; }
#endif

}  // namespace mkernel
