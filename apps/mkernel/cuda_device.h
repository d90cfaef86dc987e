// The GPU as a device of the application, and what can be asked about the GPUs of this machine.
// Without CUDA in the build, all of it answers that it is not there.
#pragma once
#include <memory>
#include <string>
#include <vector>

#include "device.h"

namespace mkernel::app {

Result<std::unique_ptr<Device>> create_cuda_device(Context& context);
Result<std::unique_ptr<StartGate>> create_cuda_gate();

struct Gpu {
  std::string name;
  std::string capability;  // "sm_90"
  int num_sms = 0;
  uint64_t memory_bytes = 0;
  uint64_t l2_bytes = 0;
  int max_sm_mhz = 0;
  std::vector<int> peers;  // GPUs whose memory it reaches directly
};

/// The GPUs of this machine; unavailable, with the reason, if there is none.
Result<std::vector<Gpu>> find_gpus();

}  // namespace mkernel::app
