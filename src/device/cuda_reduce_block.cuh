// A thread block of a GPU, as protocol/gemm_reduce.h sees it. Thread 0 feeds, thread 32 delivers,
// two warps spread results, two warpgroups multiply.
#pragma once
#include "device/cuda_team.cuh"
#include "device/gemm_block.cuh"
#include "device/reduce_epilogue.cuh"
#include "protocol/tile_output.h"
#include "protocol/tile_work.h"

namespace mkernel {

/// Invariants:
/// 1. The delivering thread writes an output only after the consumers are done with the one before:
///    it waits for `stored` between two of them.
/// 2. It admits every tile that is announced, so the wait in multiply() ends if its own waits do,
///    and those are bounded.
/// 3. Stores of all consumer threads come before the delivering thread's flags: each warp arrives
/// at
///    `stored` behind its stores (release), the delivering thread waits there (acquire), and its
///    release of a flag is cumulative.
template <class Config>
class CudaReduceBlock {
 public:
  __device__ CudaReduceBlock(uint8_t* shared, const GemmArguments& arguments, const TileSums& sums,
                             char* const* peer_slots)
      : gemm_(shared, arguments), sums_(sums), peer_slots_(peer_slots) {
    if (leader()) {
      ptx::mbarrier_init(admitted(), 1);
      ptx::mbarrier_init(stored(), Config::kNumConsumers * 4);
      ptx::fence_mbarrier_init();
    }
    __syncthreads();
  }

  __device__ bool leader() const { return threadIdx.x == 0; }
  __device__ void sync() { __syncthreads(); }

  template <class Feed, class Multiply, class Deliver, class Spread>
  __device__ void split(Feed&& feed, Multiply&& multiply, Deliver&& deliver, Spread&& spread) {
    if (gemm_.is_producer_warpgroup()) {
      gemm_.begin_producer();
      if (gemm_.is_feeder()) {
        feed();
      } else if (threadIdx.x == kDeliverer) {
        deliver();
      } else if (CudaTeam::is_member()) {
        CudaTeam team;
        spread(team);
      }
    } else {
      gemm_.begin_consumer();
      multiply();
    }
    gemm_.leave();
  }

  __device__ void feed(const TileWork& tile) { gemm_.feed(tile); }
  __device__ void stop() { gemm_.stop(); }
  __device__ bool take(TileWork* tile) { return gemm_.take(*tile); }

  __device__ __forceinline__ void multiply(const TileWork&) {
    float acc[Config::kSums];
    gemm_.main_loop(acc);
    wait(admitted());
    gemm_.template epilogue<ReduceEpilogue<Config>>().store(sums_, peer_slots_, output(), acc);
    __syncwarp();
    if (threadIdx.x % 32 == 0) ptx::mbarrier_arrive(stored());
    phase_ ^= 1;
  }

  __device__ bool next(uint32_t* ticket) { return gemm_.next(ticket); }
  __device__ TileOutput& output() const {
    return *static_cast<TileOutput*>(__cvta_shared_to_generic(gemm_.user_memory() + 16));
  }
  __device__ void admit() { ptx::mbarrier_arrive(admitted()); }
  __device__ void await_stored() {
    wait(stored());
    phase_ ^= 1;
  }

 private:
  static constexpr uint32_t kDeliverer = 32;

  __device__ uint32_t admitted() const { return gemm_.user_memory(); }
  __device__ uint32_t stored() const { return gemm_.user_memory() + 8; }
  static_assert(16 + sizeof(TileOutput) <= GemmBlock<Config>::kUserBytes);

  __device__ void wait(uint32_t barrier) const {
    while (!ptx::mbarrier_try_wait(barrier, phase_)) {
    }
  }

  GemmBlock<Config> gemm_;
  const TileSums& sums_;  // kernel parameter, in constant memory
  char* const* peer_slots_;
  uint32_t phase_ = 0;  // of the barrier that this role waits at

  static_assert(Config::kDelivers && Config::kCluster == 1);
};

}  // namespace mkernel
