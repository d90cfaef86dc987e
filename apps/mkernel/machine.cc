#include "machine.h"

#include <algorithm>
#include <filesystem>
#include <fstream>

#include "memory/device_memory.h"
#include "network/transports.h"
#include "network/verbs/verbs.h"
#ifdef MK_WITH_CUDA
#include "memory/cuda_memory.h"
#endif

namespace mkernel::app {
namespace {

namespace fs = std::filesystem;

/// The first line of a file of the system; empty if it cannot be read.
std::string read_line(const fs::path& path) {
  std::ifstream file(path);
  std::string line;
  std::getline(file, line);
  return line;
}

std::vector<fs::path> sorted_entries(const fs::path& directory) {
  std::vector<fs::path> entries;
  std::error_code error;  // a machine without such devices has no such directory
  for (const auto& entry : fs::directory_iterator(directory, error))
    entries.push_back(entry.path());
  std::sort(entries.begin(), entries.end());
  return entries;
}

std::string joined(const std::vector<std::string>& words) {
  std::string text;
  for (const std::string& word : words)
    if (!word.empty()) text += (text.empty() ? "" : ", ") + word;
  return text;
}

void add_rdma(const fs::path& sysfs, std::vector<Nic>& nics) {
  for (const fs::path& device : sorted_entries(sysfs / "class/infiniband")) {
    for (const fs::path& port : sorted_entries(device / "ports")) {
      nics.push_back({device.filename().string() + ":" + port.filename().string(), "rdma",
                      joined({read_line(port / "link_layer"), read_line(port / "state"),
                              read_line(port / "rate")})});
    }
  }
}

void add_ethernet(const fs::path& sysfs, std::vector<Nic>& nics) {
  for (const fs::path& device : sorted_entries(sysfs / "class/net")) {
    if (read_line(device / "type") != "1") continue;  // ARPHRD_ETHER: leaves out loopback, tunnels
    const std::string speed = read_line(device / "speed");
    const bool told = !speed.empty() && speed[0] != '-';
    nics.push_back({device.filename().string(), "ethernet",
                    joined({read_line(device / "operstate"), told ? speed + " Mb/s" : ""})});
  }
}

/// How NICs reach this machine's memory, and that of each of its GPUs.
std::vector<std::string> find_ways([[maybe_unused]] const Machine& machine, bool is_efa) {
  std::vector<std::string> ways;
  const auto add = [&](const std::string& what, DeviceMemory& memory) {
    const Result<std::string> way = describe_verbs_path({}, is_efa, memory);
    ways.push_back(what + ": " + (way ? *way : way.status().message()));
  };
  add("host", *create_host_memory());
#ifdef MK_WITH_CUDA
  for (size_t i = 0; i < machine.gpus.size(); ++i)
    if (auto memory = create_cuda_memory(static_cast<int>(i)); memory)
      add("GPU " + std::to_string(i), **memory);
#endif
  return ways;
}

}  // namespace

Machine find_machine(const std::string& sysfs) {
  Machine machine;
  Result<std::vector<Gpu>> gpus = find_gpus();
  if (gpus)
    machine.gpus = std::move(gpus).value();
  else
    machine.gpus_missing = gpus.status().message();
  machine.driver = read_line(fs::path(sysfs) / "module/nvidia/version");
  add_rdma(sysfs, machine.nics);
  add_ethernet(sysfs, machine.nics);
  return machine;
}

Result<DeviceKind> choose_device(const Machine& machine, const DeviceKind* asked) {
  if (asked == nullptr) return machine.gpus.empty() ? DeviceKind::kHost : DeviceKind::kCuda;
  if (*asked == DeviceKind::kCuda && machine.gpus.empty())
    return Status(Code::kUnavailable, machine.gpus_missing);
  return *asked;
}

std::vector<Part> find_transports(const Machine& machine) {
  std::vector<Part> found;
  for (const std::string& name : transport_names()) {
    Part& part = found.emplace_back(Part{name, probe_transport(name, {}).message()});
    if (part.missing.empty() && (name == "verbs" || name == "efa"))
      part.ways = find_ways(machine, name == "efa");
  }
  return found;
}

Status check_transport(const std::string& name, const ClusterOptions& options) {
  std::string allowed = "auto";
  if (name == allowed) return Status::ok();
  for (const std::string& other : transport_names()) {
    if (other != name) {
      allowed += " or " + other;
      continue;
    }
    const Status probed = probe_transport(name, options);
    return {probed.code(), probed ? "" : "--transport " + name + ": " + probed.message()};
  }
  return {Code::kInvalidArgument, "--transport: got '" + name + "', allowed is " + allowed};
}

}  // namespace mkernel::app
