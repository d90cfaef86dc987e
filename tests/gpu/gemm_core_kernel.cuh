// The smallest kernel around GemmBlock: tiles of C in a grouped raster, taken by ticket.
// For the tests of the main loop only; operators have their own kernels and schedules.
#pragma once
#include <cstdint>

#include "device/gemm_block.cuh"

namespace mkernel::test {

/// Rows [0, rows[0]) of C come from source 0, the rest from source 1.
struct Raster {
  uint32_t rows[2];
  uint32_t n;
  uint32_t group_rows;  // rows of C worked on before the columns move on
  unsigned long long* tickets;
  unsigned long long first_ticket;  // of this launch; a launch uses num_tiles + num_feeders
};

template <class Config>
__host__ __device__ inline uint32_t num_tiles(const Raster& r, int source) {
  return (r.rows[source] + Config::kTileRows - 1) / Config::kTileRows *
         ((r.n + Config::kTileN - 1) / Config::kTileN);
}

template <class Config>
__device__ inline TileWork tile_at(const Raster& r, uint32_t index) {
  const uint32_t in_source_0 = num_tiles<Config>(r, 0);
  const uint32_t source = index < in_source_0 ? 0 : 1;
  if (source == 1) index -= in_source_0;
  const uint32_t rows = r.rows[source];
  const uint32_t num_rows = (rows + Config::kTileRows - 1) / Config::kTileRows;
  const uint32_t num_cols = (r.n + Config::kTileN - 1) / Config::kTileN;
  const uint32_t group = max(r.group_rows / Config::kTileRows, 1u);
  const uint32_t first = index / (group * num_cols) * group;
  const uint32_t in_group = index % (group * num_cols);
  const uint32_t height = min(group, num_rows - first);
  const uint32_t a_row = (first + in_group % height) * Config::kTileRows;
  return TileWork{source, a_row, a_row + (source == 1 ? r.rows[0] : 0),
                  min(rows - a_row, Config::kTileRows), in_group / height * Config::kTileN};
}

template <class Config>
__device__ inline void feed_tiles(GemmBlock<Config>& block, const Raster& raster) {
  const uint32_t total = num_tiles<Config>(raster, 0) + num_tiles<Config>(raster, 1);
  const auto take = [&] { return atomicAdd(raster.tickets, 1ull) - raster.first_ticket; };
  unsigned long long ticket = take();
  while (ticket < total) {
    const unsigned long long next = take();  // its latency hides under this tile's loads
    block.feed(tile_at<Config>(raster, static_cast<uint32_t>(ticket)));
    ticket = next;
  }
  block.stop();
}

template <class Config>
__global__ void __cluster_dims__(Config::kCluster, 1, 1) __launch_bounds__(Config::kNumThreads, 1)
    gemm_core_kernel(const __grid_constant__ GemmArguments arguments,
                     const __grid_constant__ Raster raster) {
  extern __shared__ uint8_t shared[];
  GemmBlock<Config> block(shared, arguments);
  if (block.is_producer_warpgroup()) {
    block.begin_producer();
    if (block.is_feeder()) {
      feed_tiles(block, raster);
    } else if (block.is_follower()) {
      block.follow();
    }
  } else {
    block.begin_consumer();
    TileWork tile;
    while (block.take(tile)) block.multiply(tile);
    block.finish();
  }
  block.leave();
}

}  // namespace mkernel::test
