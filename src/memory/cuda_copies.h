// Copies between GPUs, and within one, that need no SM.
#pragma once
#include <cuda_runtime.h>

#include <cstdint>
#include <memory>
#include <mutex>

#include <mkernel/status.h>

#include "memory/device_memory.h"

namespace mkernel {

struct DestroyCudaStream {
  void operator()(cudaStream_t s) const { (void)cudaStreamDestroy(s); }
};
using CudaStream = std::unique_ptr<CUstream_st, DestroyCudaStream>;

/// A stream of the current device that never waits for the default one.
Result<CudaStream> create_cuda_stream();

/// A stream of one device on which copies are enqueued, by any thread.
///
/// The driver copies within a device by a kernel, whichever call or flag asks for it, and that
/// kernel finds no SM beside persistent ones (H200, driver 580: none of eight calls got through).
/// So what stays on one device goes through pinned memory: down and up again are work of copy
/// engines.
class CudaCopies {
 public:
  static Result<std::unique_ptr<CudaCopies>> create(int device);
  ~CudaCopies();
  CudaCopies(const CudaCopies&) = delete;
  CudaCopies& operator=(const CudaCopies&) = delete;

  Status copy(void* dst, const void* src, uint64_t bytes);

  int device() const { return device_; }
  cudaStream_t stream() const { return stream_.get(); }

 private:
  CudaCopies(int device, CudaStream stream) : device_(device), stream_(std::move(stream)) {}

  /// True if both lie on one GPU.
  static Result<bool> on_one_device(const void* a, const void* b);

  const int device_;
  const CudaStream stream_;
  char* bounce_ = nullptr;  // pinned
  std::mutex mutex_;        // what goes down to the bounce buffer comes up next
};

/// A channel that uses the stream of `copies`, as others may; they must outlive it.
Result<std::unique_ptr<CopyChannel>> create_copy_channel(CudaCopies& copies);

}  // namespace mkernel
