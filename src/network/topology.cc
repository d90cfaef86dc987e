#include "network/topology.h"

#include <algorithm>
#include <cctype>
#include <fstream>
#include <map>
#include <optional>
#include <set>
#include <system_error>
#include <tuple>

namespace mkernel {
namespace {

namespace fs = std::filesystem;

/// Where a device hangs: "pci0000:00", the root port, switches, the device; and its NUMA node.
struct Place {
  std::vector<std::string> path;
  int numa_node = -1;
};

/// The place of what a link in sysfs leads to; none if that is not on PCI.
std::optional<Place> place_of(const fs::path& link) {
  std::error_code error;
  const fs::path device = fs::canonical(link, error);
  if (error) return std::nullopt;
  Place place;
  for (const fs::path& part : device) {
    if (!place.path.empty() || part.string().starts_with("pci")) place.path.push_back(part);
  }
  if (place.path.empty()) return std::nullopt;
  std::ifstream(device / "numa_node") >> place.numa_node;
  return place;
}

/// Names in the order of their numbers: mlx5_2 before mlx5_10.
std::tuple<std::string, uint64_t, std::string> sort_key(const std::string& name) {
  size_t digits = name.size();
  while (digits > 0 && std::isdigit(static_cast<unsigned char>(name[digits - 1])) != 0) --digits;
  uint64_t number = 0;
  for (size_t i = digits; i < name.size(); ++i) {
    number = number * 10 + static_cast<uint64_t>(name[i] - '0');
  }
  return {name.substr(0, digits), number, name};
}

NicDistance distance_between(const std::string& name, const std::optional<Place>& nic,
                             const Place& gpu) {
  NicDistance result{.name = name};
  if (!nic) return result;
  const auto common =
      static_cast<size_t>(std::ranges::mismatch(nic->path, gpu.path).in1 - nic->path.begin());
  result.hops = static_cast<uint32_t>(nic->path.size() + gpu.path.size() - 2 * common);
  // A common host bridge is the first name, a common root port the second.
  if (common >= 2) {
    result.distance = Distance::kSwitch;
  } else if (common == 1) {
    result.distance = Distance::kRootComplex;
  } else if (nic->numa_node >= 0 && nic->numa_node == gpu.numa_node) {
    result.distance = Distance::kNumaNode;
  }
  return result;
}

}  // namespace

const char* name_of(Distance distance) {
  switch (distance) {
    case Distance::kSwitch: return "PCI switch";
    case Distance::kRootComplex: return "root complex";
    case Distance::kNumaNode: return "NUMA node";
    case Distance::kFar: return "far";
  }
  return "unknown";
}

Result<std::vector<NicDistance>> nics_by_distance(const fs::path& sysfs,
                                                  const std::string& pci_address) {
  const std::optional<Place> gpu = place_of(sysfs / "bus/pci/devices" / pci_address);
  if (!gpu) {
    return Status(Code::kUnavailable, "no PCI device " + pci_address + " in " + sysfs.string());
  }
  std::vector<NicDistance> nics;
  std::error_code error;
  for (fs::directory_iterator it(sysfs / "class/infiniband", error), end; !error && it != end;
       it.increment(error)) {
    const std::string name = it->path().filename();
    nics.push_back(distance_between(name, place_of(it->path() / "device"), *gpu));
  }
  std::ranges::sort(nics, {}, [](const NicDistance& nic) {
    return std::tuple(nic.distance, nic.hops, sort_key(nic.name));
  });
  return nics;
}

std::vector<std::vector<std::string>> assign_nics(
    std::span<const std::vector<NicDistance>> nics_of_gpu, uint32_t num_rails) {
  std::map<std::string, uint32_t> num_users;
  std::vector<std::vector<std::string>> names_of_gpu;
  for (std::vector<NicDistance> nics : std::vector(nics_of_gpu.begin(), nics_of_gpu.end())) {
    std::ranges::stable_sort(nics, {}, [&](const NicDistance& nic) {
      return std::tuple(nic.distance, num_users[nic.name], nic.hops);
    });
    std::vector<std::string>& names = names_of_gpu.emplace_back();
    for (const NicDistance& nic : nics) {
      if (names.size() == num_rails) break;
      names.push_back(nic.name);
      ++num_users[nic.name];
    }
  }
  return names_of_gpu;
}

std::vector<std::string> in_order_of_distance(std::vector<std::string> names, const PciPlace& gpu,
                                              const std::filesystem::path& sysfs, const Log& log) {
  std::vector<std::vector<NicDistance>> nics_of_gpu;
  for (const std::string& address : gpu.gpus) {
    Result<std::vector<NicDistance>> nics = nics_by_distance(sysfs, address);
    if (!nics) {
      if (log) log("NICs are taken by name: " + nics.status().message());
      return names;
    }
    // Without those that are none of the candidates.
    std::erase_if(*nics,
                  [&](const NicDistance& nic) { return std::ranges::count(names, nic.name) == 0; });
    nics_of_gpu.push_back(std::move(*nics));
  }
  if (nics_of_gpu.empty()) return names;
  std::vector<std::string> order = assign_nics(nics_of_gpu, 1)[gpu.own];
  for (const NicDistance& nic : nics_of_gpu[gpu.own]) order.push_back(nic.name);
  order.insert(order.end(), names.begin(), names.end());
  std::set<std::string> seen;
  std::erase_if(order, [&](const std::string& name) { return !seen.insert(name).second; });
  return order;
}

}  // namespace mkernel
