// What this machine has: GPUs, network devices, and which parts of mkernel it can use.
#pragma once
#include <string>
#include <vector>

#include <mkernel/options.h>
#include <mkernel/status.h>

#include "cuda_device.h"

namespace mkernel::app {

struct Nic {
  std::string name;
  std::string kind;    // "rdma" or "ethernet"
  std::string detail;  // link layer, state, speed: as the system tells them
};

/// Something that may be missing, and why it is.
struct Part {
  std::string name;
  std::string missing;                 // empty: it is there
  std::vector<std::string> ways = {};  // how NICs reach memory, if that is a question
};

struct Machine {
  std::vector<Gpu> gpus;
  std::string gpus_missing;
  std::string driver;  // of the GPUs; empty: none
  std::vector<Nic> nics;
};

/// `sysfs` is the root of the system's device tree.
Machine find_machine(const std::string& sysfs = "/sys");

/// What to compute on: as asked, or a GPU where there is one.
Result<DeviceKind> choose_device(const Machine& machine, const DeviceKind* asked);
/// All transports, and why one cannot be used here.
std::vector<Part> find_transports(const Machine& machine);
/// Errors: invalid_argument for a transport that does not exist; why it cannot be used here.
Status check_transport(const std::string& name, const ClusterOptions& options);

}  // namespace mkernel::app
