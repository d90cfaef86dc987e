// Host memory that the device and the network both reach.
#pragma once
#include <cstdint>
#include <memory>

#include "memory/device_memory.h"
#include "network/libfabric/port.h"

namespace mkernel::libfabric {

class PinnedMemory {
 public:
  static Result<std::unique_ptr<PinnedMemory>> create(DeviceMemory& memory, Port& port,
                                                      uint64_t bytes) {
    Result<void*> data = memory.allocate_pinned(bytes);
    if (!data) return data.status();
    std::unique_ptr<PinnedMemory> pinned(new PinnedMemory(memory, static_cast<char*>(*data)));
    Result<Registration> registration = port.register_memory(*data, bytes);
    if (!registration) return registration.status();
    pinned->registration_ = std::move(*registration);
    return pinned;
  }
  ~PinnedMemory() {
    unregister();
    memory_.release(data_);
  }
  PinnedMemory(const PinnedMemory&) = delete;
  PinnedMemory& operator=(const PinnedMemory&) = delete;

  void unregister() { registration_.region.reset(); }
  char* data() const { return data_; }
  const Registration& registration() const { return registration_; }

 private:
  PinnedMemory(DeviceMemory& memory, char* data) : memory_(memory), data_(data) {}

  DeviceMemory& memory_;
  char* const data_;
  Registration registration_;
};

}  // namespace mkernel::libfabric
