#include "memory/mapped_heap.h"

#include <algorithm>

namespace mkernel {

Result<std::unique_ptr<MappedHeap>> MappedHeap::create(DeviceMemory& memory, int descriptor) {
  const Result<void*> flags = memory.import_shared(descriptor, kFlagRegionBytes);
  if (!flags) return flags.status();
  return std::unique_ptr<MappedHeap>(new MappedHeap(memory, static_cast<uint32_t*>(*flags)));
}

MappedHeap::~MappedHeap() { memory_.release(flags_); }

Result<char*> MappedHeap::map(uint64_t address, uint64_t bytes, int descriptor) {
  const Result<void*> data = memory_.import_shared(descriptor, std::max<uint64_t>(bytes, 1));
  if (!data) return data.status();
  return regions_.add({address, bytes, static_cast<char*>(*data)})->data;
}

void MappedHeap::unmap(uint64_t address) {
  char* const data = regions_.resolve(address, 0);
  if (data == nullptr) return;
  regions_.remove(address);
  memory_.release(data);
}

}  // namespace mkernel
