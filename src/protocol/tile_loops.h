// The loops of a computing block: tiles are claimed and fed by one thread, taken and multiplied by
// others. A Block provides, within split(),
//   void feed(const TileWork&), void stop()   one thread: hand a tile over, or the end
//   bool take(TileWork*)                      the multiplying threads: false at the end
//   void multiply(const TileWork&)            the multiplying threads: compute and store the tile
#pragma once
#include <cstdint>

#include "protocol/launch_state.h"
#include "protocol/tile_work.h"

namespace mkernel {

/// The feeding thread: claims tiles and hands them over. prepare(i, &work) says what tile i is,
/// with no rows where there is nothing to do, and waits for what it is made of; false ends the
/// loop. A tile is claimed when the one before is fed, not earlier, so that none waits at a busy
/// block while another one idles; the claim's latency hides behind the stages that are still to be
/// used.
template <class Block, class Prepare>
MK_HD void feed_tiles(Block& block, LaunchState* state, uint32_t num_tiles, Prepare&& prepare,
                      Tally& tally) {
  for (uint32_t i; (i = draw(&state->tile_ticket)) < num_tiles;) {
    TileWork tile;
    if (!prepare(i, &tile)) break;
    if (tile.rows == 0) continue;
    block.feed(tile);
    ++tally.tiles;
  }
  block.stop();
}

template <class Block>
MK_HD void multiply_tiles(Block& block) {
  TileWork tile;
  while (block.take(&tile)) block.multiply(tile);
}

}  // namespace mkernel
