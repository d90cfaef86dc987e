// Everything that can be set about a cluster, read once when its contexts are made.
// No option changes results; what changes results is a parameter of a plan.
#pragma once
#include <cstdint>
#include <functional>
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

/// Where bytes of a heap wait between its memory and the network.
enum class Staging : uint8_t {
  kAuto,    // nowhere if the network reaches the heap, else in bounce buffers of the host
  kAlways,  // in bounce buffers: for tests, and for hosts where registering a heap costs too much
};

/// The transport over libfabric. All ranks must have the same.
struct LibfabricOptions {
  // As `fi_info -p` takes it: tcp, verbs, cxi, ...; "": the best that is found, tcp if nothing is.
  std::string provider = {};
  // Name (eth0) or address (192.0.2.1) of the interface to use; "": the provider's first.
  std::string interface = {};
  // Writes of a rank that may be on their way at once, 1 to 65536. More hide more latency.
  uint32_t max_in_flight = 256;
  // Longer writes go in parts; 0: what the provider takes. To be touched where it takes too much.
  uint64_t max_message_bytes = 0;
  Staging staging = Staging::kAuto;
  // The largest piece that goes through a bounce buffer, 1 to 2^30, and how many buffers a pair of
  // ranks has in each direction, 1 to 16384. A rank takes 2 * ranks * slots * chunk bytes.
  uint64_t staging_chunk_bytes = 256 << 10;
  uint32_t staging_slots = 8;
};

/// The transports "verbs" (RC on InfiniBand and RoCE) and "efa" (SRD on AWS). What a link does
/// not know is refused by its name, not ignored. Numbers that are -1 are chosen: the comment says
/// how.
struct VerbsOptions {
  // The rank's NICs by name, as in /sys/class/infiniband; several are its rails, at most 8, and
  // all ranks have equally many. Empty: of those whose port is up the one nearest to the rank's
  // GPU by PCI and NUMA; GPUs that are equally near to several share them out.
  std::vector<std::string> devices = {};
  std::string sysfs = "/sys";  // where it is read what is near what
  int port = 1;                // of every device, 1 to 255
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
  // Lets a NIC write data (never flags) to memory in any order. For hosts whose PCIe is slow
  // else.
  bool relaxed_ordering = false;
  // kAuto: memory of a GPU by dma-buf, else by nvidia-peermem, else in bounce buffers.
  Staging staging = Staging::kAuto;
  // The largest piece that goes through a bounce buffer, 1 to 2^30, and how many buffers a pair of
  // ranks has in each direction, 1 to 16384. A rank takes 2 * ranks * slots * chunk bytes.
  int64_t staging_chunk_bytes = 256 << 10;
  int staging_slots = 8;
};

struct ClusterOptions {
  int nodes = 1;  // >= 1
  int gpus = 1;   // ranks per node, >= 1
  DeviceKind device = DeviceKind::kHost;
  std::string transport = "auto";  // between nodes: auto or a transport's name
  LoopbackOptions loopback;
  LibfabricOptions libfabric;
  VerbsOptions verbs;
  // How long a single wait may last, > 0: one for a rank (or a network) that is at work, and one
  // for a rank of which nothing was heard yet in this launch, which may simply be late. The
  // latter is at least the former. Raise it where ranks are launched far apart. Both are five
  // times as long in builds with a sanitizer, and `time_scale` times as long where machines are
  // emulated,
  // >= 1.
  int64_t timeout_us = 10'000'000;
  int64_t contact_timeout_us = 60'000'000;
  double time_scale = 1;
  uint64_t heap_bytes_limit = 64ULL << 30;  // work space per rank; a plan beyond it is refused
  uint32_t first_epoch = 0;                 // epoch before the first launch (tests start near 2^32)
  // Takes a line about whatever a network goes on without, e.g. a port that is down; on the thread
  // that makes the contexts. Empty: nobody wants to know.
  std::function<void(const std::string& line)> log = {};
};

}  // namespace mkernel
