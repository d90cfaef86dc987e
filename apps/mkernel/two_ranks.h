// Two ranks of this process with a heap each, for what is measured without an operator.
#pragma once
#include <memory>
#include <string>
#include <vector>

#include <mkernel/options.h>
#include <mkernel/status.h>

#include "memory/device_memory.h"
#include "memory/symmetric_heap.h"
#include "transports.h"

namespace mkernel::app {

class TwoRanks {
 public:
  /// Each with a region of kNetBytes, touched, and a few flags that are 0.
  static Result<std::unique_ptr<TwoRanks>> create();

  Result<Endpoints> connect(const std::string& transport, const ClusterOptions& options);

  uint64_t address() const { return regions_[0]->address; }  // the same on both
  char* data(uint32_t rank) const { return regions_[rank]->data; }
  uint32_t* flag(uint32_t rank, uint32_t i) const { return heaps_[rank]->flag(i); }
  SymmetricHeap& heap(uint32_t rank) const { return *heaps_[rank]; }

 private:
  TwoRanks() = default;
  Status add_rank(uint32_t rank);

  std::unique_ptr<DeviceMemory> memory_ = create_host_memory();
  std::vector<std::unique_ptr<SymmetricHeap>> heaps_;
  std::vector<HeapRegionPtr> regions_;
  std::vector<FlagRangePtr> flags_;
};

}  // namespace mkernel::app
