// Which NICs are near which GPU, read from sysfs: by PCI switches, root complexes and NUMA nodes.
#pragma once
#include <cstdint>
#include <filesystem>
#include <span>
#include <string>
#include <vector>

#include <mkernel/status.h>

#include "core/log.h"
#include "memory/device_memory.h"

namespace mkernel {

/// What the way between two devices leads through, nearest first.
enum class Distance : uint8_t {
  kSwitch,       // PCI switches only
  kRootComplex,  // the host bridge that both are below
  kNumaNode,     // another bridge of the same NUMA node
  kFar,          // another node, or not known: a device without a place on PCI
};

/// "PCI switch", "root complex", "NUMA node", "far".
const char* name_of(Distance distance);

struct NicDistance {
  std::string name;  // as in /sys/class/infiniband
  Distance distance = Distance::kFar;
  uint32_t hops = 0;  // bridges and switches between; counts among equal distances
};

/// All RDMA devices of a machine, the nearest to a PCI device first; those equally near by number.
/// `sysfs` is /sys, or a tree like it. A machine without such devices has none: that is no error.
/// Errors: unavailable, naming it, if there is no such PCI device, e.g. "0000:17:00.0".
Result<std::vector<NicDistance>> nics_by_distance(const std::filesystem::path& sysfs,
                                                  const std::string& pci_address);

/// Gives each GPU `num_rails` of the NICs that are listed for it. A GPU takes the nearest ones, and
/// of those equally near the ones that fewest GPUs before it have taken. Fewer where fewer exist.
std::vector<std::vector<std::string>> assign_nics(
    std::span<const std::vector<NicDistance>> nics_of_gpu, uint32_t num_rails);

/// The RDMA devices `names` with those first that suit a GPU best: the one that assign_nics() gives
/// it among the GPUs of its machine, then by distance, then those that sysfs does not know. As they
/// are for what is no GPU, and, with a line in the log, where sysfs does not know the GPUs.
std::vector<std::string> in_order_of_distance(std::vector<std::string> names, const PciPlace& gpu,
                                              const std::filesystem::path& sysfs, const Log& log);

}  // namespace mkernel
