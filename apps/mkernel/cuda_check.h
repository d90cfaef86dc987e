// Failed CUDA calls as a Status, the GPU on which a thread works, and events that destroy
// themselves.
#pragma once
#include <cuda_runtime_api.h>

#include <memory>
#include <string>
#include <utility>

#include <mkernel/status.h>

namespace mkernel::app {

inline Status check_cuda(cudaError_t error, const char* call) {
  if (error == cudaSuccess) return Status::ok();
  // Memory that is not there is the machine's lack, as it is where the library allocates.
  const bool lacks = error == cudaErrorMemoryAllocation;
  return {lacks ? Code::kUnavailable : Code::kInternal,
          std::string(call) + " failed: " + cudaGetErrorString(error)};
}

/// The GPU that holds `memory`.
inline Result<int> device_of(const void* memory) {
  cudaPointerAttributes attributes{};
  MK_RETURN_IF_ERROR(
      check_cuda(cudaPointerGetAttributes(&attributes, memory), "cudaPointerGetAttributes"));
  return attributes.device;
}

/// Makes the GPU that holds `memory` the current one of this thread.
inline Status use_device_of(const void* memory) {
  const Result<int> device = device_of(memory);
  if (!device) return device.status();
  return check_cuda(cudaSetDevice(device.value()), "cudaSetDevice");
}

struct DestroyEvent {
  void operator()(cudaEvent_t event) const { (void)cudaEventDestroy(event); }
};
using Event = std::unique_ptr<CUevent_st, DestroyEvent>;

/// On the current GPU.
inline Status create_event(Event& event, unsigned flags = cudaEventDefault) {
  cudaEvent_t raw = nullptr;
  MK_RETURN_IF_ERROR(check_cuda(cudaEventCreateWithFlags(&raw, flags), "cudaEventCreate"));
  event.reset(raw);
  return Status::ok();
}

}  // namespace mkernel::app
