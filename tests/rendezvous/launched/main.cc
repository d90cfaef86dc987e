// A rank started by a launcher: joins by MPI ("mpi") or by its environment ("environment", and the
// host of rank 0 if it has to be told), gathers everybody's rank, and says "ok RANK/WORLD".
#include <cstdio>
#include <cstdlib>
#include <string>

#include <mkernel/mpi.h>

#include "rendezvous/launcher.h"
#include "rendezvous/process_group.h"

namespace {

using namespace mkernel;

Result<RendezvousOptions> options_of_environment(const char* address) {
  Result<std::optional<Launch>> launch =
      detect_launch([](const char* name) { return std::getenv(name); });
  if (!launch) return launch.status();
  if (!*launch) return Status(Code::kUnavailable, "no launcher");
  RendezvousOptions given;
  if (address != nullptr) given.address = address;
  return options_of_launch(given, **launch);
}

Status run(const Result<RendezvousOptions>& options) {
  if (!options) return options.status();
  Result<std::unique_ptr<ProcessGroup>> group = ProcessGroup::join(options.value());
  if (!group) return group.status();
  Result<std::vector<std::string>> all =
      (*group)->all_gather("ranks", std::to_string((*group)->rank()), 60'000'000);
  if (!all) return all.status();
  for (size_t i = 0; i < all->size(); ++i) {
    if ((*all)[i] != std::to_string(i)) return {Code::kInternal, "gathered " + (*all)[i]};
  }
  std::printf("ok %u/%u\n", (*group)->rank(), (*group)->world());
  return (*group)->barrier("end", 60'000'000);
}

}  // namespace

int main(int argc, char** argv) {
  const bool with_mpi = argc > 1 && std::string(argv[1]) == "mpi";
  if (with_mpi) MPI_Init(&argc, &argv);
  const Status status = run(with_mpi ? rendezvous_of_mpi(MPI_COMM_WORLD)
                                     : options_of_environment(argc > 2 ? argv[2] : nullptr));
  if (!status) std::fprintf(stderr, "%s\n", status.to_string().c_str());
  if (with_mpi) MPI_Finalize();
  return status ? 0 : 1;
}
