// info: what this machine has, what mkernel will use, and why not what is missing.
#include <cstdio>

#include <nlohmann/json.hpp>

#include "commands.h"
#include "machine.h"

namespace mkernel::app {
namespace {

using Json = nlohmann::ordered_json;

/// What check and bench take if nothing is said.
const char* default_device(const Machine& machine) {
  return name_of(machine.gpus.empty() ? DeviceKind::kHost : DeviceKind::kCuda);
}

std::string numbers(const std::vector<int>& list) {
  std::string text;
  for (const int i : list) text += (text.empty() ? "" : " ") + std::to_string(i);
  return text.empty() ? "none" : text;
}

Json to_json(const Machine& machine, const std::vector<Part>& transports) {
  Json json;
  json["gpus"] = Json::array();
  for (const Gpu& gpu : machine.gpus) {
    json["gpus"].push_back({{"name", gpu.name},
                            {"capability", gpu.capability},
                            {"sms", gpu.num_sms},
                            {"memory_bytes", gpu.memory_bytes},
                            {"l2_bytes", gpu.l2_bytes},
                            {"max_sm_mhz", gpu.max_sm_mhz},
                            {"peers", gpu.peers}});
  }
  json["driver"] = machine.driver.empty() ? Json(nullptr) : Json(machine.driver);
  json["nics"] = Json::array();
  for (const Nic& nic : machine.nics)
    json["nics"].push_back({{"name", nic.name}, {"kind", nic.kind}, {"detail", nic.detail}});
  json["transports"] = Json::array();
  for (const Part& part : transports)
    json["transports"].push_back(
        {{"name", part.name}, {"available", part.missing.empty()}, {"ways", part.ways}});
  json["used"] = {{"device", default_device(machine)}, {"transport", "loopback"}};
  json["missing"] = Json::object();
  if (machine.gpus.empty()) json["missing"]["cuda"] = machine.gpus_missing;
  for (const Part& part : transports)
    if (!part.missing.empty()) json["missing"][part.name] = part.missing;
  return json;
}

void print(const Machine& machine, const std::vector<Part>& transports) {
  std::printf("GPUs\n");
  for (size_t i = 0; i < machine.gpus.size(); ++i) {
    const Gpu& gpu = machine.gpus[i];
    std::printf("  %zu: %s, %s, %d SMs, %.1f GiB, direct links to: %s\n", i, gpu.name.c_str(),
                gpu.capability.c_str(), gpu.num_sms, static_cast<double>(gpu.memory_bytes) / 0x1p30,
                numbers(gpu.peers).c_str());
  }
  if (machine.gpus.empty()) std::printf("  %s\n", machine.gpus_missing.c_str());
  if (!machine.driver.empty()) std::printf("  driver %s\n", machine.driver.c_str());
  std::printf("network devices\n");
  for (const Nic& nic : machine.nics)
    std::printf("  %s: %s%s%s\n", nic.name.c_str(), nic.kind.c_str(),
                nic.detail.empty() ? "" : ", ", nic.detail.c_str());
  if (machine.nics.empty()) std::printf("  none\n");
  std::printf("transports between nodes\n");
  for (const Part& part : transports) {
    std::printf("  %s: %s\n", part.name.c_str(),
                part.missing.empty() ? "yes" : part.missing.c_str());
    for (const std::string& way : part.ways) std::printf("    memory of %s\n", way.c_str());
  }
  std::printf("used if nothing is said\n  device %s, transport loopback\n",
              default_device(machine));
}

}  // namespace

Status run_info(const Arguments& arguments) {
  const Machine machine = find_machine();
  const std::vector<Part> transports = find_transports(machine);
  if (arguments.print_json)
    std::printf("%s\n", to_json(machine, transports).dump(2).c_str());
  else
    print(machine, transports);
  return Status::ok();
}

}  // namespace mkernel::app
