#include "network/verbs/nic_path.h"

#include <unistd.h>

#include <utility>

namespace mkernel::verbs {
namespace {

constexpr uint64_t kProbeBytes = 64 << 10;  // a page of a GPU

Result<std::unique_ptr<MemoryRegion>> register_dmabuf(Device& device, DeviceMemory& memory,
                                                      void* data, uint64_t bytes,
                                                      const Access& access) {
  const Result<DmaBuf> buffer = memory.export_dmabuf(data, bytes);
  if (!buffer) return buffer.status();
  auto region = device.register_dmabuf(buffer.value().descriptor, buffer.value().offset, bytes,
                                       reinterpret_cast<uint64_t>(data), access);
  (void)close(buffer.value().descriptor);  // the registration holds the buffer
  return region;
}

Status try_on_all(NicPath path, std::span<Rail> rails, DeviceMemory& memory, void* data) {
  for (Rail& rail : rails) {
    const Status tried = register_by(path, *rail.device, memory, data, kProbeBytes,
                                     {.local_write = true, .remote_write = true})
                             .status();
    if (!tried) return {tried.code(), std::string(name_of(path)) + ": " + tried.message()};
  }
  return Status::ok();
}

}  // namespace

const char* name_of(NicPath path) {
  switch (path) {
    case NicPath::kHost: return "host memory";
    case NicPath::kDmabuf: return "dma-buf";
    case NicPath::kPeermem: return "nvidia-peermem";
    case NicPath::kBounce: return "bounce buffers";
  }
  return "unknown";
}

Result<std::unique_ptr<MemoryRegion>> register_by(NicPath path, Device& device,
                                                  DeviceMemory& memory, void* data, uint64_t bytes,
                                                  const Access& access) {
  if (path == NicPath::kDmabuf) return register_dmabuf(device, memory, data, bytes, access);
  return device.register_memory(data, bytes, access);
}

Result<FoundPath> find_nic_path(std::span<Rail> rails, DeviceMemory& memory, Staging staging) {
  if (staging == Staging::kAlways) return FoundPath{NicPath::kBounce, "asked for"};
  if (memory.host_accessible()) return FoundPath{};
  if (!memory.orders_nic_writes()) {
    return FoundPath{NicPath::kBounce, "the platform does not order a NIC's writes for the GPU"};
  }
  Result<void*> probe = memory.allocate(kProbeBytes);
  if (!probe) return probe.status();
  FoundPath found{NicPath::kBounce};
  for (const NicPath path : {NicPath::kDmabuf, NicPath::kPeermem}) {
    const Status tried = try_on_all(path, rails, memory, probe.value());
    if (tried) {
      found.path = path;
      break;
    }
    found.why_not += (found.why_not.empty() ? "" : "; ") + tried.message();
  }
  memory.release(probe.value());
  return found;
}

}  // namespace mkernel::verbs
