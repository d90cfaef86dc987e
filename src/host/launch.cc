#include "host/launch.h"

#include <cstring>
#include <memory>
#include <thread>
#include <vector>

#include "host/host_block.h"

namespace mkernel {
namespace {

HostGemm gemm_of(const LaunchWork& op, uint32_t cols, uint32_t tile_n) {
  HostGemm g;
  g.sources[kOwnRows] = op.a;
  g.source_pitch[kOwnRows] = op.a_pitch;
  g.b = op.b;
  g.b_pitch = op.b_pitch;
  g.c = op.c;
  g.c_pitch = op.c_pitch;
  g.n = cols;
  g.k = op.k;
  g.tile_n = tile_n;
  g.dtype = op.dtype;
  g.b_layout = op.b_layout;
  g.peer_slots = op.peer_slots;
  return g;
}

/// Runs `body(block)` on the two threads of each of `num_blocks` blocks, and waits for them.
template <class Body>
void run_blocks(uint32_t num_blocks, const HostGemm& gemm, Body&& body) {
  std::vector<std::unique_ptr<HostBlockShared>> shared(num_blocks);
  std::vector<std::jthread> threads;
  for (auto& s : shared) {
    s = std::make_unique<HostBlockShared>();
    for (int thread = 0; thread < 2; ++thread)
      threads.emplace_back([&body, block = HostBlock(*s, thread, gemm)]() mutable { body(block); });
  }
}  // jthread joins

/// The copy engine.
void push_all(const AllGatherGemmWork& op, const std::vector<EnginePush>& pushes) {
  if (op.dog.aborted()) return;  // then nobody waited for the peers, which may still read the slot
  for (const EnginePush& p : pushes) {
    for (uint64_t i = 0; i < p.rows; ++i)
      std::memcpy(p.dst + i * op.slot_pitch, op.a + (p.begin + i) * op.a_pitch, op.row_bytes());
    store_release<Scope::kSys>(p.flag, load_acquire<Scope::kSys>(&op.state->epoch));
  }
}

}  // namespace

void launch_on_host(const AllGatherGemmWork& op, std::span<const EnginePush> pushes,
                    HostStream& stream) {
  stream.enqueue([op, pushes = std::vector(pushes.begin(), pushes.end())] {
    HostGemm gemm = gemm_of(op, op.tiles.cols, op.tiles.tile_n);
    for (uint32_t slot = 0; slot < op.flags.slots; ++slot) {
      gemm.sources[kFirstSlot + slot] = op.own_slots + slot * op.slot_bytes;
      gemm.source_pitch[kFirstSlot + slot] = op.slot_pitch;
    }
    const std::jthread engine([&] { push_all(op, pushes); });
    run_blocks(op.num_blocks, gemm, [&](HostBlock& block) { all_gather_gemm(block, op); });
  });
}

void launch_on_host(const GemmReduceWork& op, HostStream& stream) {
  stream.enqueue([op] {
    HostGemm gemm = gemm_of(op, op.tiles.cols, op.tiles.tile_n);
    gemm.sums = &op.sums;
    run_blocks(op.num_blocks, gemm, [&](HostBlock& block) { gemm_reduce(block, op); });
  });
}

}  // namespace mkernel
