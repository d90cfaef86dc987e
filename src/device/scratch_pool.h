// Memory that lives for one launch, taken and given back in stream order.
#pragma once
#include <cuda_runtime.h>

#include <memory>

#include <mkernel/status.h>

namespace mkernel {

/// A pool of one device. Threads: any.
class ScratchPool {
 public:
  /// A pool on the current device.
  static Result<std::unique_ptr<ScratchPool>> create();
  ~ScratchPool();
  ScratchPool(const ScratchPool&) = delete;
  ScratchPool& operator=(const ScratchPool&) = delete;

  cudaMemPool_t handle() const { return pool_; }

 private:
  ScratchPool() = default;
  cudaMemPool_t pool_ = nullptr;
};

}  // namespace mkernel
