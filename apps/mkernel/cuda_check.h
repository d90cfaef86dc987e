// Failed CUDA calls as a Status, and the GPU on which a thread works.
#pragma once
#include <string>

#include <cuda_runtime_api.h>

#include <mkernel/status.h>

namespace mkernel::app {

inline Status check_cuda(cudaError_t error, const char* call) {
  if (error == cudaSuccess) return Status::ok();
  return {Code::kInternal, std::string(call) + " failed: " + cudaGetErrorString(error)};
}

/// Makes the GPU that holds `memory` the current one of this thread.
inline Status use_device_of(const void* memory) {
  cudaPointerAttributes attributes{};
  MK_RETURN_IF_ERROR(
      check_cuda(cudaPointerGetAttributes(&attributes, memory), "cudaPointerGetAttributes"));
  return check_cuda(cudaSetDevice(attributes.device), "cudaSetDevice");
}

}  // namespace mkernel::app
