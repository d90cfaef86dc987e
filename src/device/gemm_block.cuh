// The one GEMM main loop, as one CTA (or one CTA of a cluster of two) sees it: a feeding thread
// announces tiles and keeps the TMA pipeline full, two consumer warpgroups multiply and store.
// It knows nothing of flags, peers or tile orders: the kernel's feeding thread decides those.
#pragma once
#include <cstdint>

#include "device/epilogue.cuh"
#include "device/gemm_arguments.h"
#include "device/gemm_config.cuh"
#include "device/ptx/cluster.cuh"
#include "device/ptx/fence.cuh"
#include "device/ptx/mbarrier.cuh"
#include "device/ptx/registers.cuh"
#include "device/ptx/tma.cuh"
#include "device/ptx/wgmma.cuh"
#include "protocol/tile_work.h"

namespace mkernel {

/// Use, in a kernel of Config::kNumThreads threads, launch bounds (kNumThreads, 1), dynamic shared
/// memory kSharedBytes, cluster size kCluster; all threads stay to the end:
///
///   GemmBlock<Config> block(shared, arguments);   // all threads, all CTAs, once
///   ... any other work of the CTA; it may use scratch() ...
///   if (block.is_producer_warpgroup()) {
///     block.begin_producer();
///     if (block.is_feeder())        { while (...) block.feed(tile); block.stop(); }
///     else if (block.is_follower()) { block.follow(); }
///   } else {
///     block.begin_consumer();
///     TileWork tile;
///     while (block.take(tile)) block.multiply(tile);
///     block.finish();
///   }
///   block.leave();                                // all threads
///
/// Invariants:
/// 1. A tile announced is a tile whose loads are all issued, and the last announcement is a stop.
///    So no wait inside take() or multiply() can outlive the feeding thread's loop: a feeder that
///    sees a fault need only call stop().
/// 2. A stage is loaded again only after every consumer warp of the cluster has released it
///    (num arrivals of empty_), because half of B lands in both CTAs.
/// 3. The bytes expected on full_ are the bytes of the boxes issued for it; boxes outside a matrix
///    count in full.
template <class Config>
class GemmBlock {
 public:
  __device__ GemmBlock(uint8_t* shared, const GemmArguments& arguments)
      : arguments_(arguments),
        base_((ptx::shared_address(shared) + Config::kAlignment - 1) & ~(Config::kAlignment - 1)),
        cta_(Config::kCluster == 1 ? 0 : ptx::cluster_cta_rank()),
        // The shuffle tells the compiler that this is the same for the whole warp, so that it can
        // keep what follows from it in uniform registers.
        warpgroup_(__shfl_sync(0xffffffff, threadIdx.x / Config::kWarpgroupThreads, 0)) {
    if (threadIdx.x == 0) init_barriers();
    cluster_sync();
  }

  __device__ bool is_producer_warpgroup() const { return warpgroup_ == 0; }
  /// The thread that decides on tiles: one per cluster.
  __device__ bool is_feeder() const { return threadIdx.x == 0 && cta_ == 0; }
  /// The thread that loads what the feeder of another CTA decided.
  __device__ bool is_follower() const { return threadIdx.x == 0 && cta_ != 0; }

  /// Shared memory of the pipeline, free for ordinary use until the first feed() of the cluster:
  /// after it, the CTA that wrote here needs fence_proxy_async_shared and a barrier (of the
  /// cluster) before that feed().
  __device__ uint32_t scratch() const { return base_; }
  static constexpr uint32_t kScratchBytes = Config::kStages * Config::kStageBytes;

  /// kUserBytes of shared memory that this class never touches, e.g. for barriers of the kernel.
  __device__ uint32_t user_memory() const { return control() + Config::kControlBytes / 2; }
  static constexpr uint32_t kUserBytes = Config::kControlBytes / 2;

  /// All threads of the warpgroup, converged.
  __device__ void begin_producer() { ptx::set_max_registers_down<Config::kProducerRegisters>(); }
  __device__ void begin_consumer() { ptx::set_max_registers_up<Config::kConsumerRegisters>(); }

  /// After a flag was acquired that guards rows of A (or B) written by ordinary stores, before
  /// feed() of a tile that reads them. The thread that acquired must be the one that feeds; with a
  /// cluster, feed() passes the order on to the follower, which fences for itself.
  __device__ static void acquire_for_tma() { ptx::fence_proxy_async(); }

  /// Announces a tile and issues all its loads; waits for room in the pipeline. Feeder only.
  __device__ void feed(const TileWork& tile) {
    announce(tile);
    load(tile);
  }

  /// No more tiles. Feeder only, once.
  __device__ void stop() { announce(TileWork{}); }

  /// Loads the tiles that the feeder announces, until it stops. Follower only.
  __device__ void follow() {
    while (true) {
      const TileWork tile = read_slot();
      free_slot();
      advance_slot();
      if (tile.rows == 0) return;
      // The feeder acquired what it waited for; its arrival made that visible here.
      acquire_for_tma();
      load(tile);
    }
  }

  /// The next tile, or false at the stop. All consumer threads.
  __device__ bool take(TileWork& tile) {
    tile = read_slot();
    __syncwarp();
    if (threadIdx.x % 32 == 0) free_slot();
    advance_slot();
    return tile.rows != 0;
  }

  /// The ticket of the next tile, or false at the stop. One thread, where Config::kDelivers.
  __device__ bool next(uint32_t* ticket) {
    const TileWork tile = read_slot();
    free_slot();
    advance_slot();
    *ticket = tile.c_row;
    return tile.rows != 0;
  }

  /// Multiplies and stores the tile last taken. All consumer threads.
  __device__ __forceinline__ void multiply(const TileWork& tile) {
    float acc[Config::kSums];
    main_loop(acc);
    const uint32_t first = cta_ * Config::kTileM + consumer() * Config::kConsumerRows;
    if (first >= tile.rows) return;
    const EpilogueTarget to{tile.c_row + first, min(tile.rows - first, Config::kConsumerRows),
                            tile.col};
    epilogue<Epilogue<Config>>().store(arguments_, to, acc);
  }

  /// Multiplies the tile last taken. All consumer threads.
  __device__ __forceinline__ void main_loop(float (&acc)[Config::kSums]) {
    constexpr bool kIsKn = Config::kBLayout == BLayout::kKN;
    constexpr uint32_t kStepK = 16;
    constexpr uint32_t kStepA = kStepK * kElementBytes / 16;  // in descriptor units of 16 bytes
    constexpr uint32_t kStepB = (kIsKn ? kStepK * kBoxCols : kStepK) * kElementBytes / 16;
    constexpr uint32_t kGroupBytes = 8 * 128;  // 8 lines of the swizzle pattern
    constexpr uint32_t kHigh = ptx::wgmma_descriptor_high(kGroupBytes);
    const uint32_t a_low =
        ptx::wgmma_descriptor_low(base_ + consumer() * (Config::kStageBytesA / 2), 0);
    const uint32_t b_low =
        ptx::wgmma_descriptor_low(base_ + Config::kStageBytesA, kIsKn ? Config::kBoxBytesB : 0);
    const uint32_t num_steps = (arguments_.k + Config::kTileK - 1) / Config::kTileK;
    uint32_t previous = 0;
    for (uint32_t step = 0; step < num_steps; ++step) {
      while (!ptx::mbarrier_try_wait(full(stage_), stage_phase_)) {
      }
      const uint32_t offset = stage_ * (Config::kStageBytes / 16);
      ptx::wgmma_fence_registers(acc);
      ptx::wgmma_fence();
#pragma unroll
      for (uint32_t i = 0; i < Config::kTileK / kStepK; ++i) {
        ptx::wgmma_m64k16<Config::kType, kIsKn>(
            acc, ptx::wgmma_descriptor(a_low + offset + i * kStepA, kHigh),
            ptx::wgmma_descriptor(b_low + offset + i * kStepB, kHigh), i > 0 || step > 0);
      }
      ptx::wgmma_commit();
      ptx::wgmma_fence_registers(acc);
      // One wgmma group stays in flight; the one before it has now read its stage.
      ptx::wgmma_wait<1>();
      if (step != 0) release(previous);
      previous = stage_;
      advance_stage();
    }
    ptx::wgmma_wait<0>();
    ptx::wgmma_fence_registers(acc);
    release(previous);
  }

  /// What stores the sums of a tile, with the warpgroup's staging memory. All consumer threads.
  template <class Output>
  __device__ Output epilogue() const {
    const uint32_t staging =
        base_ + kScratchBytes + consumer() * Config::kStagedBoxesC * Config::kBoxBytesC;
    return Output(staging, consumer());
  }

  /// Until all that this warpgroup stored to C is visible: to thread 0 of the warpgroup what went
  /// by TMA, to each thread its own plain stores. All consumer threads.
  __device__ void finish() { epilogue<Epilogue<Config>>().drain(); }

  /// Ends the use of the block: no CTA may end while the other one still writes to it.
  __device__ void leave() {
    __syncwarp();  // the feeding thread left its warp behind
    cluster_sync();
  }

 private:
  static constexpr uint32_t kConsumerWarps = Config::kNumConsumers * 4;
  static constexpr uint32_t kSlotBytes = 16;
  static constexpr uint32_t kSourceBits = 2;
  static_assert(kMaxSourcesA <= 1 << kSourceBits);

  // Barriers and announced tiles, behind the stages and the staging of C.
  __device__ uint32_t control() const { return base_ + kScratchBytes + Config::kStagedBytesC; }
  __device__ uint32_t full(uint32_t stage) const { return control() + stage * 8; }
  __device__ uint32_t empty(uint32_t stage) const { return control() + 128 + stage * 8; }
  __device__ uint32_t slot_full(uint32_t slot) const { return control() + 256 + slot * 8; }
  __device__ uint32_t slot_empty(uint32_t slot) const { return control() + 288 + slot * 8; }
  __device__ uint32_t slot_words(uint32_t slot) const {
    return control() + 320 + slot * kSlotBytes;
  }
  static_assert(Config::kStages <= 16 && Config::kTileSlots <= 4);
  static_assert(320 + Config::kTileSlots * kSlotBytes <= Config::kControlBytes / 2);

  __device__ void init_barriers() {
    for (uint32_t i = 0; i < Config::kStages; ++i) {
      ptx::mbarrier_init(full(i), 1);
      ptx::mbarrier_init(empty(i), kConsumerWarps * Config::kCluster);
    }
    for (uint32_t i = 0; i < Config::kTileSlots; ++i) {
      ptx::mbarrier_init(slot_full(i), 1);
      // Readers of a tile: all consumer warps of the cluster, the followers, and who delivers. Only
      // the feeder's copy of this barrier is used.
      ptx::mbarrier_init(slot_empty(i), kConsumerWarps * Config::kCluster + Config::kCluster - 1 +
                                            (Config::kDelivers ? 1 : 0));
    }
    ptx::fence_mbarrier_init();
    ptx::tma_prefetch_map(&arguments_.a[0]);
    ptx::tma_prefetch_map(&arguments_.b);
  }

  __device__ void cluster_sync() {
    if constexpr (Config::kCluster == 1) {
      __syncthreads();
    } else {
      ptx::cluster_arrive();
      ptx::cluster_wait();
    }
  }

  __device__ uint32_t consumer() const { return warpgroup_ - 1; }

  __device__ void advance_slot() {
    if (++slot_ == Config::kTileSlots) {
      slot_ = 0;
      slot_phase_ ^= 1;
    }
  }
  __device__ void advance_stage() {
    if (++stage_ == Config::kStages) {
      stage_ = 0;
      stage_phase_ ^= 1;
    }
  }

  // With a cluster, what is read after the wait may come from the other CTA.
  __device__ static void wait_slot(uint32_t barrier, uint32_t parity) {
    if constexpr (Config::kCluster == 1) {
      while (!ptx::mbarrier_try_wait(barrier, parity)) {
      }
    } else {
      while (!ptx::mbarrier_try_wait_cluster(barrier, parity)) {
      }
    }
  }

  __device__ void announce(const TileWork& tile) {
    wait_slot(slot_empty(slot_), slot_phase_ ^ 1);
    // Who delivers knows where a tile goes by its ticket.
    const uint32_t c_row = Config::kDelivers ? tile.ticket : tile.c_row;
    const uint4 words =
        make_uint4(tile.a_row, c_row, tile.col, tile.rows << kSourceBits | tile.source);
    if constexpr (Config::kCluster == 1) {
      ptx::store_shared_cluster(slot_words(slot_), words);
      ptx::mbarrier_arrive(slot_full(slot_));
    } else {
      for (uint32_t cta = 0; cta < Config::kCluster; ++cta) {
        ptx::store_shared_cluster(ptx::map_shared_rank(slot_words(slot_), cta), words);
        ptx::mbarrier_arrive_cluster(ptx::map_shared_rank(slot_full(slot_), cta));
      }
    }
    advance_slot();
  }

  __device__ TileWork read_slot() {
    wait_slot(slot_full(slot_), slot_phase_);
    const uint4 words = ptx::load_shared(slot_words(slot_));
    return TileWork{.source = words.w & ((1 << kSourceBits) - 1),
                    .a_row = words.x,
                    .c_row = words.y,
                    .rows = words.w >> kSourceBits,
                    .col = words.z};
  }

  // The slot has been read, in one load that is before this in program order.
  __device__ void free_slot() {
    if constexpr (Config::kCluster == 1) {
      ptx::mbarrier_arrive(slot_empty(slot_));
    } else {
      ptx::mbarrier_arrive_cluster_relaxed(ptx::map_shared_rank(slot_empty(slot_), 0));
    }
  }

  __device__ void load(const TileWork& tile) {
    const CUtensorMap* a = &arguments_.a[tile.source];
    const uint32_t a_row = tile.a_row + cta_ * Config::kTileM;
    for (uint32_t k = 0; k < arguments_.k; k += Config::kTileK) {
      while (!ptx::mbarrier_try_wait(empty(stage_), stage_phase_ ^ 1)) {
      }
      const uint32_t barrier = full(stage_);
      const uint32_t to = base_ + stage_ * Config::kStageBytes;
      ptx::mbarrier_arrive_expect_tx(barrier, Config::kStageBytes);
      ptx::tma_load_2d(to, a, barrier, k, a_row);
#pragma unroll
      for (uint32_t i = 0; i < Config::kBoxesBPerCta; ++i) {
        const uint32_t box = cta_ * Config::kBoxesBPerCta + i;
        load_b(to + Config::kStageBytesA + box * Config::kBoxBytesB, barrier, box, k, tile.col);
      }
      advance_stage();
    }
  }

  __device__ void load_b(uint32_t to, uint32_t barrier, uint32_t box, uint32_t k, uint32_t col) {
    constexpr bool kIsKn = Config::kBLayout == BLayout::kKN;
    const uint32_t x = kIsKn ? col + box * kBoxCols : k;
    const uint32_t y = kIsKn ? k : col + box * kBoxRowsBnk;
    if constexpr (Config::kCluster == 1) {
      ptx::tma_load_2d(to, &arguments_.b, barrier, x, y);
    } else {
      ptx::tma_load_2d_multicast(to, &arguments_.b, barrier, x, y, (1 << Config::kCluster) - 1);
    }
  }

  // This warp reads `stage` no more: told to every CTA that loads into it.
  __device__ __forceinline__ void release(uint32_t stage) {
    if constexpr (Config::kCluster == 1) {
      if (threadIdx.x % 32 == 0) ptx::mbarrier_arrive(empty(stage));
    } else {
      const uint32_t lane = threadIdx.x % 32;
      if (lane < Config::kCluster) {
        ptx::mbarrier_arrive_cluster_relaxed(ptx::map_shared_rank(empty(stage), lane));
      }
    }
  }

  const GemmArguments& arguments_;  // kernel parameter, in constant memory
  uint32_t base_;
  uint32_t cta_;
  uint32_t warpgroup_;
  uint32_t stage_ = 0;  // each role walks the ring on its own
  uint32_t stage_phase_ = 0;
  uint32_t slot_ = 0;
  uint32_t slot_phase_ = 0;
};

}  // namespace mkernel
