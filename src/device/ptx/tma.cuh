// Bulk tensor copies (TMA) between global and shared memory. One PTX instruction per function.
// Coordinates are in elements, innermost dimension first.
#pragma once
#include <cuda.h>

#include <cstdint>

namespace mkernel::ptx {

__device__ __forceinline__ void tma_prefetch_map(const CUtensorMap* map) {
  asm volatile("prefetch.tensormap [%0];" ::"l"(map) : "memory");
}

/// Global box -> shared memory of this CTA; `barrier` counts the bytes.
__device__ __forceinline__ void tma_load_2d(uint32_t destination, const CUtensorMap* map,
                                            uint32_t barrier, uint32_t x, uint32_t y) {
  asm volatile(
      "cp.async.bulk.tensor.2d.shared::cluster.global.tile.mbarrier::complete_tx::bytes"
      " [%0], [%1, {%3, %4}], [%2];" ::"r"(destination),
      "l"(map), "r"(barrier), "r"(x), "r"(y)
      : "memory");
}

/// Global box -> the same offset in the shared memory of every CTA in `cta_mask` of the cluster;
/// the barrier at the same offset of each counts the bytes. (SM to SM; no NVLink is involved.)
__device__ __forceinline__ void tma_load_2d_multicast(uint32_t destination, const CUtensorMap* map,
                                                      uint32_t barrier, uint32_t x, uint32_t y,
                                                      uint16_t cta_mask) {
  asm volatile(
      "cp.async.bulk.tensor.2d.shared::cluster.global.tile.mbarrier::complete_tx::bytes"
      ".multicast::cluster [%0], [%1, {%3, %4}], [%2], %5;" ::"r"(destination),
      "l"(map), "r"(barrier), "r"(x), "r"(y), "h"(cta_mask)
      : "memory");
}

/// Shared box -> global; parts outside the tensor are not written.
__device__ __forceinline__ void tma_store_2d(const CUtensorMap* map, uint32_t source, uint32_t x,
                                             uint32_t y) {
  asm volatile(
      "cp.async.bulk.tensor.2d.global.shared::cta.tile.bulk_group [%0, {%2, %3}], [%1];" ::"l"(map),
      "r"(source), "r"(x), "r"(y)
      : "memory");
}

/// Contiguous bytes from global to shared memory; completes on the barrier. All three a multiple
/// of 16.
__device__ __forceinline__ void bulk_load(uint32_t destination, const void* source, uint32_t bytes,
                                          uint32_t barrier) {
  asm volatile(
      "cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1], %2, [%3];" ::
          "r"(destination),
      "l"(source), "r"(bytes), "r"(barrier)
      : "memory");
}

/// Contiguous bytes from shared to global memory, of this GPU or a peer; joins the open group.
__device__ __forceinline__ void bulk_store(void* destination, uint32_t source, uint32_t bytes) {
  asm volatile("cp.async.bulk.global.shared::cta.bulk_group [%0], [%1], %2;" ::"l"(destination),
               "r"(source), "r"(bytes)
               : "memory");
}

__device__ __forceinline__ void bulk_commit_group() {
  asm volatile("cp.async.bulk.commit_group;" ::: "memory");
}

/// Until all but the last `kPending` groups of this thread have read their source.
template <int kPending>
__device__ __forceinline__ void bulk_wait_group_read() {
  asm volatile("cp.async.bulk.wait_group.read %0;" ::"n"(kPending) : "memory");
}

/// Until all but the last `kPending` groups of this thread are written and visible to it.
template <int kPending>
__device__ __forceinline__ void bulk_wait_group() {
  asm volatile("cp.async.bulk.wait_group %0;" ::"n"(kPending) : "memory");
}

}  // namespace mkernel::ptx
