// A thread block of a GPU, as protocol/ sees it: thread 0 leads, copies in bulk and feeds; two
// warpgroups multiply.
#pragma once
#include "device/bulk_copy.cuh"
#include "device/gemm_block.cuh"
#include "device/row_copy.cuh"
#include "protocol/tile_work.h"

namespace mkernel {

template <class Config>
class CudaBlock {
 public:
  __device__ CudaBlock(uint8_t* shared, const GemmArguments& arguments)
      : gemm_(shared, arguments), copier_(gemm_.scratch(), gemm_.user_memory()) {
    if (leader()) copier_.init();
  }

  __device__ bool leader() const { return threadIdx.x == 0; }
  __device__ void sync() { __syncthreads(); }
  __device__ bool all(bool ok) { return __syncthreads_and(ok) != 0; }

  __device__ uint32_t broadcast(uint32_t value) {
    __shared__ uint32_t word;
    if (leader()) word = value;
    __syncthreads();
    const uint32_t result = word;
    __syncthreads();
    return result;
  }

  __device__ void copy_rows(const RowCopy& copy) {
    if (!BulkCopier::can_carry(copy)) return copy_rows_by_elements(copy, threadIdx.x, blockDim.x);
    if (leader()) copier_.copy(copy);
  }

  template <class Feed, class Multiply>
  __device__ void split(Feed&& feed, Multiply&& multiply) {
    if (gemm_.is_producer_warpgroup()) {
      gemm_.begin_producer();
      if (gemm_.is_feeder()) {
        feed();
      } else if (gemm_.is_follower()) {
        gemm_.follow();
      }
    } else {
      gemm_.begin_consumer();
      multiply();
      gemm_.finish();
    }
    gemm_.leave();
  }

  __device__ void feed(const TileWork& tile) {
    // The caller's own rows were complete before the launch; others came by ordinary stores.
    if (tile.source != kOwnRows) gemm_.acquire_for_tma();
    gemm_.feed(tile);
  }
  __device__ void stop() { gemm_.stop(); }
  __device__ bool take(TileWork* tile) { return gemm_.take(*tile); }
  __device__ void multiply(const TileWork& tile) { gemm_.multiply(tile); }

 private:
  GemmBlock<Config> gemm_;
  BulkCopier copier_;

  static_assert(BulkCopier::kRingBytes <= GemmBlock<Config>::kScratchBytes);
  static_assert(BulkCopier::kBarrierBytes <= GemmBlock<Config>::kUserBytes);
};

}  // namespace mkernel
