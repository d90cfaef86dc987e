// What the command line says, as one struct.
#pragma once
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include <mkernel/operators.h>
#include <mkernel/options.h>
#include <mkernel/rendezvous.h>
#include <mkernel/status.h>

namespace mkernel::app {

enum class Command { kInfo, kCheck, kBench, kNetBench, kHelp };

/// The union of what the operators take; an operator looks at what it knows.
struct CaseArguments {
  int64_t m = 0;
  int64_t n = 0;
  int64_t k = 0;
  DType dtype = DType::kBf16;
  BLayout b_layout = BLayout::kKN;
  bool gather_a = false;
  uint64_t seed = 1;
  AllGatherGemmTuning tuning;

  // Sums over all ranks.
  Partials partials = Partials::k16Bit;
  double alpha = 1;
  bool bias = false;
  bool residual = false;
  Activation activation = Activation::kNone;
  Output output = Output::kSame;
  int64_t workspace_mib = 0;
  int64_t round_tiles = 0;
};

/// What net-bench takes.
struct NetArguments {
  std::vector<std::string> transports = {"loopback"};
  uint64_t min_bytes = 4096;
  uint64_t max_bytes = 4 << 20;
  int64_t depth = 64;
};

struct Arguments {
  Command command = Command::kInfo;
  std::string help;  // what to print for kHelp
  std::string op;
  ClusterOptions cluster;
  std::optional<RendezvousOptions> rendezvous;  // empty: all ranks in this process

  bool reports() const { return !rendezvous || rendezvous->rank == 0; }
  std::optional<DeviceKind> device;  // empty: a GPU where there is one
  CaseArguments operands;
  NetArguments net;
  int64_t iters = 0;
  std::string baseline = "all";
  bool print_json = false;  // info
  bool stats = false;       // what the proxies did
  std::string json_file;
  std::string plot_file;
  std::string dump_dir;
};

/// Errors: invalid_argument with one line for whoever typed it.
Result<Arguments> parse_arguments(int argc, char** argv);

const char* name_of(DType dtype);
const char* name_of(BLayout layout);
const char* name_of(DeviceKind device);
const char* name_of(LinkOrder order);
const char* name_of(Push push);
const char* name_of(Partials partials);
const char* name_of(Activation activation);
const char* name_of(Output output);

}  // namespace mkernel::app
