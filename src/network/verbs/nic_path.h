// How NICs reach the memory of a rank's heap: found out, and not assumed.
//   host memory   is registered as it is;
//   a GPU's       by a dma-buf that its driver gives (no kernel module beyond it is needed), else
//   as
//                 it is, which the module nvidia-peermem makes possible; else not at all, and bytes
//                 go by bounce buffers (network/staged.h).
// A GPU whose platform does not order a NIC's writes for its own threads takes bounce buffers too:
// they are copied up by the GPU's own engines, whose flag stores come after the copies.
#pragma once
#include <cstdint>
#include <memory>
#include <span>
#include <string>

#include <mkernel/options.h>
#include <mkernel/status.h>

#include "memory/device_memory.h"
#include "network/verbs/rail.h"

namespace mkernel::verbs {

enum class NicPath : uint8_t { kHost, kDmabuf, kPeermem, kBounce };

/// "host memory", "dma-buf", "nvidia-peermem", "bounce buffers".
const char* name_of(NicPath path);

struct FoundPath {
  NicPath path = NicPath::kHost;
  std::string why_not = {};  // why none of the nearer ways works; empty for the first
};

/// The best way for all rails, by registering a little memory in each way.
/// Errors: what allocating memory returns.
Result<FoundPath> find_nic_path(std::span<Rail> rails, DeviceMemory& memory, Staging staging);

/// Registers memory of a heap in a way that was found.
Result<std::unique_ptr<MemoryRegion>> register_by(NicPath path, Device& device,
                                                  DeviceMemory& memory, void* data, uint64_t bytes,
                                                  const Access& access);

}  // namespace mkernel::verbs
