// The host machine's block: two threads that stand for a thread block of a GPU, one that leads and
// feeds, one that moves and multiplies; and where an operator asks for it a third one that
// delivers, and a team of two that spreads results.
#pragma once
#include <cstdint>
#include <semaphore>
#include <thread>

#include "host/host_gemm.h"
#include "host/host_team.h"
#include "protocol/tile_output.h"
#include "protocol/tile_work.h"

namespace mkernel {

/// One value from one thread to another, bounded.
template <class T>
class HostPipe {
 public:
  void put(const T& value) {
    empty_.acquire();
    value_ = value;
    full_.release();
  }
  T get() {
    full_.acquire();
    const T value = value_;
    empty_.release();
    return value;
  }

 private:
  std::binary_semaphore full_{0};
  std::binary_semaphore empty_{1};
  T value_{};
};

struct HostBlockShared {
  HostTeamShared team;
  // From the feeder, who always ends with a tile without rows.
  HostPipe<TileWork> tiles;
  HostPipe<TileWork> tickets;  // the same tiles, for who delivers
  TileOutput next_output;      // of who delivers
  HostPipe<TileOutput> outputs;
  std::binary_semaphore stored{0};
  HostTeamShared spreaders;
};

class HostBlock : public HostTeam {
 public:
  HostBlock(HostBlockShared& shared, int thread, const HostGemm& gemm)
      : HostTeam(shared.team, thread), shared_(shared), gemm_(gemm) {}

  template <class Feed, class Multiply>
  void split(Feed&& feed, Multiply&& multiply) {
    if (leader())
      feed();
    else
      multiply();
  }
  template <class Feed, class Multiply, class Deliver, class Spread>
  void split(Feed&& feed, Multiply&& multiply, Deliver&& deliver, Spread&& spread) {
    const auto as_spreader = [&](int thread) {
      HostTeam team(shared_.spreaders, thread);
      spread(team);
    };
    if (!leader()) {
      const std::jthread spreading(as_spreader, 1);
      return multiply();
    }
    const std::jthread delivering(deliver), spreading(as_spreader, 0);
    feed();
  }

  void feed(const TileWork& tile) {
    shared_.tiles.put(tile);
    if (gemm_.delivers()) shared_.tickets.put(tile);
  }
  void stop() { feed(TileWork{}); }
  bool take(TileWork* tile) {
    *tile = shared_.tiles.get();
    return tile->rows != 0;
  }
  void multiply(const TileWork& tile) {
    const HostTile sums = gemm_.multiply(tile);
    if (!gemm_.delivers()) return gemm_.store(tile, sums);
    gemm_.store(shared_.outputs.get(), sums);
    shared_.stored.release();
  }

  bool next(uint32_t* ticket) {
    const TileWork tile = shared_.tickets.get();
    *ticket = tile.ticket;
    return tile.rows != 0;
  }
  TileOutput& output() { return shared_.next_output; }
  void admit() { shared_.outputs.put(shared_.next_output); }
  void await_stored() { shared_.stored.acquire(); }

 private:
  HostBlockShared& shared_;
  const HostGemm& gemm_;
};

}  // namespace mkernel
