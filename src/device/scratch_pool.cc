#include "device/scratch_pool.h"

#include <cstdint>

#include "memory/cuda_check.h"

namespace mkernel {

Result<std::unique_ptr<ScratchPool>> ScratchPool::create() {
  std::unique_ptr<ScratchPool> pool(new ScratchPool);
  cudaMemPoolProps properties{};
  properties.allocType = cudaMemAllocationTypePinned;
  properties.location.type = cudaMemLocationTypeDevice;
  MK_CUDA_CHECK(cudaGetDevice(&properties.location.id));
  MK_CUDA_CHECK(cudaMemPoolCreate(&pool->pool_, &properties));
  // A pool may otherwise hand one stream what another one frees later, and make it wait for that:
  // two ranks' launches that wait for each other would never end.
  int no = 0;
  MK_CUDA_CHECK(
      cudaMemPoolSetAttribute(pool->pool_, cudaMemPoolReuseAllowInternalDependencies, &no));
  // Nor may memory go back to the driver between launches, which can wait for the device.
  uint64_t everything = UINT64_MAX;
  MK_CUDA_CHECK(cudaMemPoolSetAttribute(pool->pool_, cudaMemPoolAttrReleaseThreshold, &everything));
  return pool;
}

ScratchPool::~ScratchPool() {
  if (pool_ != nullptr) (void)cudaMemPoolDestroy(pool_);
}

}  // namespace mkernel
