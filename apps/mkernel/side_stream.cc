#if defined(MK_WITH_CUDA)
#include "side_stream.h"

#include "cuda_check.h"

namespace mkernel::app {
namespace {

struct DestroyStream {
  void operator()(cudaStream_t stream) const { (void)cudaStreamDestroy(stream); }
};
using OwnedStream = std::unique_ptr<CUstream_st, DestroyStream>;

class CudaSideStream final : public SideStream {
 public:
  CudaSideStream(int device, OwnedStream stream, Event event)
      : device_(device), stream_(std::move(stream)), event_(std::move(event)) {}

  StreamHandle handle() const override { return stream_.get(); }

  Status follow(StreamHandle main) override {
    return order(static_cast<cudaStream_t>(main), stream_.get());
  }
  Status lead(StreamHandle main) override {
    return order(stream_.get(), static_cast<cudaStream_t>(main));
  }

 private:
  /// One event is enough: a wait is for the record before it, whatever is recorded later.
  Status order(cudaStream_t before, cudaStream_t after) {
    MK_RETURN_IF_ERROR(check_cuda(cudaSetDevice(device_), "cudaSetDevice"));
    MK_RETURN_IF_ERROR(check_cuda(cudaEventRecord(event_.get(), before), "cudaEventRecord"));
    return check_cuda(cudaStreamWaitEvent(after, event_.get(), 0), "cudaStreamWaitEvent");
  }

  int device_;
  OwnedStream stream_;
  Event event_;
};

}  // namespace

Result<std::unique_ptr<SideStream>> create_side_stream(const void* memory) {
  const Result<int> device = device_of(memory);
  if (!device) return device.status();
  MK_RETURN_IF_ERROR(use_device_of(memory));
  // First in line for SMs: communication needs few, and behind a GEMM's blocks it would get none.
  int lowest = 0, highest = 0;
  MK_RETURN_IF_ERROR(check_cuda(cudaDeviceGetStreamPriorityRange(&lowest, &highest),
                                "cudaDeviceGetStreamPriorityRange"));
  cudaStream_t raw = nullptr;
  MK_RETURN_IF_ERROR(check_cuda(cudaStreamCreateWithPriority(&raw, cudaStreamNonBlocking, highest),
                                "cudaStreamCreateWithPriority"));
  OwnedStream stream(raw);
  Event event;
  MK_RETURN_IF_ERROR(create_event(event, cudaEventDisableTiming));
  return std::unique_ptr<SideStream>(
      std::make_unique<CudaSideStream>(device.value(), std::move(stream), std::move(event)));
}

}  // namespace mkernel::app
#endif
