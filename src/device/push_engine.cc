#include "device/push_engine.h"

#include "memory/cuda_check.h"

namespace mkernel {
namespace {

Status copy_rows(const AllGatherGemmWork& op, const EnginePush& p, cudaStream_t stream) {
  const char* src = op.a + p.begin * op.a_pitch;
  if (op.a_pitch == op.slot_pitch) {
    MK_CUDA_CHECK(cudaMemcpyAsync(p.dst, src, (p.rows - 1) * op.a_pitch + op.row_bytes(),
                                  cudaMemcpyDeviceToDevice, stream));
    return Status::ok();
  }
  MK_CUDA_CHECK(cudaMemcpy2DAsync(p.dst, op.slot_pitch, src, op.a_pitch, op.row_bytes(), p.rows,
                                  cudaMemcpyDeviceToDevice, stream));
  return Status::ok();
}

}  // namespace

Result<std::unique_ptr<PushEngine>> PushEngine::create() {
  std::unique_ptr<PushEngine> engine(new PushEngine);
  MK_CUDA_CHECK(cudaEventCreateWithFlags(&engine->forked_, cudaEventDisableTiming));
  for (size_t i = 0; i < kNumStreams; ++i) {
    MK_CUDA_CHECK(cudaStreamCreateWithFlags(&engine->streams_[i], cudaStreamNonBlocking));
    MK_CUDA_CHECK(cudaEventCreateWithFlags(&engine->done_[i], cudaEventDisableTiming));
  }
  return engine;
}

PushEngine::~PushEngine() {
  for (cudaStream_t stream : streams_)
    if (stream != nullptr) (void)cudaStreamDestroy(stream);
  for (cudaEvent_t event : done_)
    if (event != nullptr) (void)cudaEventDestroy(event);
  if (forked_ != nullptr) (void)cudaEventDestroy(forked_);
}

Status PushEngine::fork(cudaStream_t stream) {
  MK_CUDA_CHECK(cudaEventRecord(forked_, stream));
  for (cudaStream_t s : streams_) MK_CUDA_CHECK(cudaStreamWaitEvent(s, forked_));
  return Status::ok();
}

Status PushEngine::push(const AllGatherGemmWork& op, std::span<const EnginePush> pushes) {
  for (size_t i = 0; i < pushes.size(); ++i) {
    cudaStream_t stream = streams_[i % kNumStreams];
    MK_RETURN_IF_ERROR(copy_rows(op, pushes[i], stream));
    MK_CUDA_CHECK(cudaMemcpyAsync(pushes[i].flag, &op.state->epoch, sizeof(uint32_t),
                                  cudaMemcpyDeviceToDevice, stream));
  }
  return Status::ok();
}

Status PushEngine::join(cudaStream_t stream) {
  for (size_t i = 0; i < kNumStreams; ++i) {
    MK_CUDA_CHECK(cudaEventRecord(done_[i], streams_[i]));
    MK_CUDA_CHECK(cudaStreamWaitEvent(stream, done_[i]));
  }
  return Status::ok();
}

}  // namespace mkernel
