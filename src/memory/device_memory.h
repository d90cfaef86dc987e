// Memory of one rank's device as the host handles it: one interface, two kinds of device.
#pragma once
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include <mkernel/options.h>
#include <mkernel/status.h>

namespace mkernel {

/// Moves bytes into a rank's device memory on behalf of a network that runs on the host.
/// Threads: one proxy thread.
class CopyChannel {
 public:
  virtual ~CopyChannel() = default;
  /// Enqueues a copy between any two devices' memories; copies of a channel complete in order.
  virtual Status copy(void* dst, const void* src, uint64_t bytes) = 0;
  /// Enqueues the store of a flag word, visible to the device only after all earlier copies.
  virtual Status store_flag(uint32_t* flag, uint32_t value) = 0;
  /// A number that grows with what was enqueued so far ...
  virtual Result<uint64_t> mark() = 0;
  /// ... and whether everything up to that mark is complete.
  virtual Result<bool> done(uint64_t mark) = 0;
};

/// A dma-buf, which a NIC takes for memory of another device.
struct DmaBuf {
  int descriptor = -1;
  uint64_t offset = 0;  // of the memory that was asked for
};

/// Where a device is among those of its machine that programs see.
struct PciPlace {
  std::vector<std::string> gpus = {};  // e.g. "0000:17:00.0"; empty: it is no device on PCI
  size_t own = 0;
};

/// Threads: any. Pointers stay valid until released or until this object is destroyed.
class DeviceMemory {
 public:
  virtual ~DeviceMemory() = default;
  /// Memory of the device, 256-byte aligned.
  virtual Result<void*> allocate(uint64_t bytes) = 0;
  /// Zeroed host memory that the device reads and writes at the same address.
  virtual Result<void*> allocate_pinned(uint64_t bytes) = 0;
  virtual void release(void* p) = 0;
  /// Whether the host, and so any network, reads and writes what allocate() gives.
  virtual bool host_accessible() const = 0;
  /// A new file descriptor of a dma-buf around memory from allocate() or allocate_shared(); the
  /// caller closes it.
  /// Errors: unsupported for memory of the host; what the driver says.
  virtual Result<DmaBuf> export_dmabuf(void* p, uint64_t bytes) {
    (void)p;
    return Status(Code::kUnsupported,
                  "no dma-buf for " + std::to_string(bytes) + " bytes of this memory");
  }
  virtual PciPlace pci_place() const { return {}; }
  /// Whether threads of the device that see a NIC's write see all that the NIC wrote before it.
  virtual bool orders_nic_writes() const { return true; }

  /// Memory like allocate()'s that other processes of this host can map.
  virtual Result<void*> allocate_shared(uint64_t bytes) = 0;
  /// A new file descriptor that stands for memory of allocate_shared(); the caller closes it.
  virtual Result<int> export_shared(void* p) = 0;
  /// Maps what another process exported, of as many bytes as were allocated; release() unmaps it.
  /// The descriptor stays the caller's, who may close it at once.
  virtual Result<void*> import_shared(int descriptor, uint64_t bytes) = 0;

  /// Copies between host and device, complete on return.
  virtual Status upload(void* dst, const void* src, uint64_t bytes) = 0;
  virtual Status download(void* dst, const void* src, uint64_t bytes) = 0;
  /// A word of the device that its kernels may be changing.
  virtual Result<uint64_t> peek(uint64_t* word) = 0;
  virtual Result<std::unique_ptr<CopyChannel>> create_channel() = 0;
};

/// Memory of the host machine.
std::unique_ptr<DeviceMemory> create_host_memory();

}  // namespace mkernel
