// The current CUDA device is a property of the thread; this changes it for a scope only.
#pragma once
#include <cuda_runtime.h>

namespace mkernel {

/// Makes a device current in this scope and leaves the caller's choice as it was.
class DeviceScope {
 public:
  explicit DeviceScope(int device) : error_(cudaGetDevice(&previous_)) {
    // Set also where it is the default already: that makes the context which driver calls need.
    if (error_ == cudaSuccess) error_ = cudaSetDevice(device);
  }
  ~DeviceScope() { (void)cudaSetDevice(previous_); }
  DeviceScope(const DeviceScope&) = delete;
  DeviceScope& operator=(const DeviceScope&) = delete;
  cudaError_t entered() const { return error_; }

 private:
  int previous_ = 0;
  cudaError_t error_;
};

}  // namespace mkernel
