// The one description of a GEMM main loop: element type, layout of B, tile, pipeline, registers.
// Sizes that follow from it are computed here and nowhere else.
#pragma once
#include <cstdint>

#include "device/gemm_arguments.h"
#include "mkernel/tensor.h"

namespace mkernel {

/// kCluster_: CTAs that share every load of B (1 or 2). With 2, a cluster computes 256 x 256 tiles:
/// each CTA loads its own 128 rows of A and half of B, which goes to both (SM-to-SM multicast).
/// One H200, 2026-11-29, gemm_core bench, time of cuBLAS over ours below the power limit, lowest
/// and highest of eight cases: 0.973-0.995 with 1, 0.974-1.004 with 2; at the limit 1 is no slower.
/// So 1 is the default: its tiles are finer and its CTAs independent.
/// kTileN_: columns of a tile, 256 or 128. The wide one reads less per product; the narrow one
/// leaves fewer SMs idle where there are few tiles (schedule/tile_choice.h).
/// kDelivers_: one more thread of the block learns of every tile, by its ticket (GemmBlock::next).
template <DType kType_, BLayout kBLayout_, int kCluster_ = 1, uint32_t kTileN_ = 256,
          bool kDelivers_ = false>
struct GemmConfig {
  static constexpr DType kType = kType_;
  static constexpr BLayout kBLayout = kBLayout_;
  static constexpr int kCluster = kCluster_;
  static constexpr bool kDelivers = kDelivers_;

  static constexpr uint32_t kTileM = 128;  // of one CTA
  static constexpr uint32_t kTileN = kTileN_;
  static constexpr uint32_t kTileK = 64;
  static constexpr uint32_t kTileRows = kTileM * kCluster;  // of a TileWork

  static constexpr uint32_t kWarpgroupThreads = 128;
  static constexpr uint32_t kNumConsumers = 2;  // warpgroups, each 64 x kTileN of the tile
  static constexpr uint32_t kConsumerRows = kTileM / kNumConsumers;
  static constexpr uint32_t kNumThreads = kWarpgroupThreads * (1 + kNumConsumers);
  static constexpr int kSums = kConsumerRows * kTileN / kWarpgroupThreads;  // of a thread
  // The feeding thread also runs an operator's schedule and waits: with 40 it spilled. Those who
  // deliver and spread results do more: with 72 they spilled.
  static constexpr int kProducerRegisters = kDelivers ? 88 : 56;
  static constexpr int kConsumerRegisters = kDelivers ? 208 : 224;

  static constexpr uint32_t kStageBytesA = kTileM * kTileK * kElementBytes;
  static constexpr uint32_t kStageBytesB = kTileN * kTileK * kElementBytes;
  static constexpr uint32_t kStageBytes = kStageBytesA + kStageBytesB;
  /// As many as fit, beside what is staged of C: 4 of a wide tile, 6 of a narrow one.
  static constexpr int kStages = (192 << 10) / kStageBytes;
  static constexpr uint32_t kBoxBytesB =
      kBoxCols * (kBLayout == BLayout::kKN ? kBoxRowsBkn : kBoxRowsBnk) * kElementBytes;
  static constexpr uint32_t kBoxesB = kStageBytesB / kBoxBytesB;
  static constexpr uint32_t kBoxesBPerCta = kBoxesB / kCluster;

  // Staging of C, in boxes of 64 x 64 per consumer warpgroup: what the stages leave room for.
  static constexpr uint32_t kBoxBytesC = kBoxCols * kBoxRowsC * kElementBytes;
  static constexpr uint32_t kBoxesC = kTileN / kBoxCols;
  static constexpr int kStagedBoxesC = 2;

  static constexpr uint32_t kTileSlots = 2;        // announced tiles, between feeder and consumers
  static constexpr uint32_t kControlBytes = 1024;  // barriers, announced tiles, the kernel's own
  static constexpr uint32_t kAlignment = 1024;     // of the 128-byte swizzle's pattern
  static constexpr uint32_t kStagedBytesC = kNumConsumers * kStagedBoxesC * kBoxBytesC;
  /// Dynamic shared memory to launch with, slack for alignment included.
  static constexpr uint32_t kSharedBytes =
      kAlignment + kStages * kStageBytes + kStagedBytesC + kControlBytes;

  static_assert(kCluster == 1 || kCluster == 2, "B is shared by one or two CTAs");
  static_assert(kStages >= 2, "a wgmma in flight holds one stage while the next is read");
  static_assert(kSharedBytes <= 227 * 1024, "shared memory of an SM");
  static_assert(kWarpgroupThreads * (kProducerRegisters + kNumConsumers * kConsumerRegisters) <=
                    64 * 1024,
                "register file of an SM");
  static_assert(kProducerRegisters % 8 == 0 && kConsumerRegisters % 8 == 0, "setmaxnreg granule");
  static_assert(kConsumerRows == kBoxRowsC && kTileM == kBoxRowsA && kTileK == kBoxCols);
  static_assert(kBoxesB % kCluster == 0);
};

}  // namespace mkernel
