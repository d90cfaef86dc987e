#include "machine.h"

#include <algorithm>
#include <filesystem>
#include <fstream>

#include "network/transports.h"

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

std::vector<Part> find_transports() {
  std::vector<Part> found;
  for (const std::string& name : transport_names())
    found.push_back({name, probe_transport(name, {}).message()});
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
