// mkernel: see `mkernel --help`.
#include <cstdio>
#include <cstdlib>
#include <string>

#include "commands.h"
#include "exit_code.h"

namespace mkernel::app {
namespace {

int fail(const Status& status) {
  const ExitCode code = exit_code_of(status);
  // Of a failed run the kind matters too; of what was typed, or is missing, the message says it.
  const std::string text = code == kExitFailed ? status.to_string() : status.message();
  std::fflush(stdout);
  std::fprintf(stderr, "mkernel: %s\n", text.c_str());
  return code;
}

int run(int argc, char** argv) {
  // Ranks that share a GPU need a hardware queue for each of their streams. The library asks for
  // that too, but the driver reads it once, and looking for GPUs comes first here.
  (void)setenv("CUDA_DEVICE_MAX_CONNECTIONS", "32", /*overwrite=*/0);
  const Result<Arguments> arguments = parse_arguments(argc, argv);
  if (!arguments) return fail(arguments.status());
  if (!arguments.value().reports() && std::freopen("/dev/null", "w", stdout) == nullptr)
    return fail({Code::kInternal, "cannot open /dev/null"});
  switch (arguments.value().command) {
    case Command::kHelp: std::fputs(arguments.value().help.c_str(), stdout); return kExitRight;
    case Command::kInfo:
    case Command::kNetBench: {
      const bool info = arguments.value().command == Command::kInfo;
      const Status status = info ? run_info(arguments.value()) : run_net_bench(arguments.value());
      return status ? kExitRight : fail(status);
    }
    case Command::kCheck:
    case Command::kBench: {
      const bool check = arguments.value().command == Command::kCheck;
      const Result<bool> right =
          check ? run_check(arguments.value()) : run_bench(arguments.value());
      if (!right) return fail(right.status());  // each process says its own: any may be gone
      return right.value() ? kExitRight : kExitWrong;
    }
  }
  return kExitFailed;
}

}  // namespace
}  // namespace mkernel::app

int main(int argc, char** argv) { return mkernel::app::run(argc, argv); }
