// Everything that can be set about a cluster, read once when its contexts are made.
// No option changes results; what changes results is a parameter of a plan.
#pragma once
#include <cstdint>
#include <string>
#include <vector>

namespace mkernel {

enum class DeviceKind : uint8_t {
  kHost,  // threads stand for SMs: for development and tests, its times mean nothing
  kCuda,  // Hopper GPUs (sm_90)
};

/// Whether a link delivers messages in the order in which they were posted.
enum class LinkOrder : uint8_t { kInOrder, kReordered };

/// The loopback transport's model of a network link, per direction and pair of ranks.
struct LoopbackOptions {
  double link_gbs = 0;                    // bandwidth in 1e9 bytes/s; 0: unlimited
  double link_us = 0;                     // latency in microseconds, >= 0
  LinkOrder order = LinkOrder::kInOrder;  // kReordered delivers like AWS SRD
  uint64_t seed = 1;                      // of the reordering
  double late_us = 0;  // kReordered: of a link's writes every third, from its first, is so late
  // Ranks whose network stands still for stall_us whenever a message finds it idle, so also before
  // the first one of a launch.
  std::vector<int> stalled_ranks = {};
  double stall_us = 0;
  // The write of this number, counted from 0 over all ranks, completes with an error, and so do all
  // later ones between its two ranks; -1: none.
  int64_t fail_after = -1;
};

struct ClusterOptions {
  int nodes = 1;  // >= 1
  int gpus = 1;   // ranks per node, >= 1
  DeviceKind device = DeviceKind::kHost;
  std::string transport = "auto";  // between nodes: auto or loopback
  LoopbackOptions loopback;
  // How long a single wait may last, > 0: one for a rank (or a network) that is at work, and one
  // for a rank of which nothing was heard yet in this launch, which may simply be late. The latter
  // is at least the former. Raise it where ranks are launched far apart. Both are five times as
  // long in builds with a sanitizer, and `time_scale` times as long where machines are emulated,
  // >= 1.
  int64_t timeout_us = 10'000'000;
  int64_t contact_timeout_us = 60'000'000;
  double time_scale = 1;
  uint64_t heap_bytes_limit = 64ULL << 30;  // work space per rank; a plan beyond it is refused
  uint32_t first_epoch = 0;                 // epoch before the first launch (tests start near 2^32)
};

}  // namespace mkernel
