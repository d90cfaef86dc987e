// Memory of one CUDA device.
#pragma once
#include <memory>

#include "memory/device_memory.h"

namespace mkernel {

/// Memory of the device, reachable from every other device of this process that can be a peer.
/// Allocating and releasing may wait for running kernels: do neither while a persistent kernel
/// waits for a launch that this thread still has to make. Channels never wait for the device.
/// Errors: internal, with the CUDA call that failed.
Result<std::unique_ptr<DeviceMemory>> create_cuda_memory(int device);

}  // namespace mkernel
