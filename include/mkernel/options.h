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

/// The transports "verbs" (RC on InfiniBand and RoCE) and "efa" (SRD on AWS). What a link does not
/// know is refused by its name, not ignored. Numbers that are -1 are chosen: the comment says how.
struct VerbsOptions {
  // The rank's NICs by name, as in /sys/class/infiniband; several are its rails, at most 8, and all
  // ranks have equally many. Empty: the first one whose port is up.
  std::vector<std::string> devices = {};
  int port = 1;  // of every device, 1 to 255
  // Entry of the port's GID table. -1: on Ethernet RoCE v2 with an IPv4 address, else RoCE v2. On
  // InfiniBand naming one means that packets are routed by GID.
  int gid_index = -1;
  int traffic_class = -1;  // 0 to 255; -1: 0. Ethernet, or InfiniBand with gid_index
  int service_level = -1;  // 0 to 15, on Ethernet 0 to 7; -1: 0
  int mtu = 0;             // 256, 512, 1024, 2048 or 4096 bytes; 0: what both ports have
  // A packet without answer is sent again after 4.096 us * 2^timeout, retry_count times. So they
  // say how soon a dead peer is noticed, and how much loss is survived.
  int timeout = -1;      // 1 to 31; -1: 14, which is 67 ms
  int retry_count = -1;  // 0 to 7; -1: 6, since Soft-RoCE takes 7 for no end
  int rnr_retry = -1;    // for a peer that is late to receive: 0 to 6, or 7: no end; -1: 7
  int qps_per_peer = 1;  // per device, 1 to 16; more may help one NIC to fill its link
  int depth = 0;         // writes in flight per rank, 1 to 32768; 0: 256, or the device's most
  int64_t split_bytes = 64 << 10;  // a write is split over rails and queues in parts not smaller
  // Lets a NIC write data (never flags) to memory in any order. For hosts whose PCIe is slow else.
  bool relaxed_ordering = false;
};

struct ClusterOptions {
  int nodes = 1;  // >= 1
  int gpus = 1;   // ranks per node, >= 1
  DeviceKind device = DeviceKind::kHost;
  std::string transport = "auto";  // between nodes: auto or loopback
  LoopbackOptions loopback;
  VerbsOptions verbs;
  int64_t timeout_us = 10'000'000;          // limit of every single wait, > 0
  uint64_t heap_bytes_limit = 64ULL << 30;  // work space per rank; a plan beyond it is refused
  uint32_t first_epoch = 0;                 // epoch before the first launch (tests start near 2^32)
};

}  // namespace mkernel
