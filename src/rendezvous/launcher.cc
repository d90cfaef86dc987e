#include "rendezvous/launcher.h"

#include <charconv>
#include <cstdlib>
#include <string_view>
#include <utility>

#include "rendezvous/message.h"
#include "rendezvous/socket.h"
#include "rendezvous/text.h"

namespace mkernel {
namespace {

constexpr uint16_t kFirstPort = 20000;
constexpr uint16_t kNumPorts = 9000;
constexpr uint32_t kMaxWorld = 1 << 16;

Status bad(const std::string& name, const std::string& value, const std::string& allowed) {
  return {Code::kInvalidArgument, "environment variable " + name + " = \"" + printable(value, 200) +
                                      "\": must be " + allowed};
}

/// Reads variables, and keeps the first error.
class Variables {
 public:
  explicit Variables(const Environment& environment) : environment_(environment) {}

  bool has(const char* name) const { return environment_(name) != nullptr; }
  std::string text(const char* name) const {
    const char* const value = environment_(name);
    return value == nullptr ? "" : value;
  }
  /// A number from min to max; the variable must be there.
  uint32_t number(const char* name, uint32_t min, uint32_t max, const std::string& allowed) {
    const std::string value = text(name);
    uint32_t parsed = 0;
    const char* const end = value.data() + value.size();
    const auto [stop, error] = std::from_chars(value.data(), end, parsed);
    if (error == std::errc() && stop == end && parsed >= min && parsed <= max) return parsed;
    if (status_) {
      status_ = has(name)
                    ? bad(name, value, allowed)
                    : Status(Code::kInvalidArgument, std::string("environment variable ") + name +
                                                         " is missing: must be " + allowed);
    }
    return min;
  }
  const Status& status() const { return status_; }

 private:
  const Environment& environment_;
  Status status_;
};

/// The variables by which a launcher tells a process its place.
struct Names {
  const char *rank, *world, *local_rank, *local_world;
};

/// The place of this process. The local ones may be missing, both.
Launch read_place(Variables& variables, Launcher launcher, const Names& names) {
  Launch launch{};
  launch.launcher = launcher;
  launch.world =
      variables.number(names.world, 1, kMaxWorld, "from 1 to " + std::to_string(kMaxWorld));
  const std::string of_world =
      std::string(" (") + names.world + " is " + std::to_string(launch.world) + ")";
  launch.rank = variables.number(names.rank, 0, launch.world - 1,
                                 "from 0 to " + std::to_string(launch.world - 1) + of_world);
  uint32_t max_local_rank = launch.world - 1;
  if (names.local_world != nullptr && variables.has(names.local_world)) {
    launch.local_world = variables.number(names.local_world, 1, launch.world,
                                          "from 1 to " + std::to_string(launch.world) + of_world);
    max_local_rank = *launch.local_world - 1;
  }
  if (variables.has(names.local_rank) || launch.local_world) {
    launch.local_rank = variables.number(names.local_rank, 0, max_local_rank,
                                         "from 0 to " + std::to_string(max_local_rank));
  }
  return launch;
}

bool is_on_one_host(const Launch& launch) { return launch.local_world == launch.world; }

std::string address_at(const std::string& host, const std::string& run_id) {
  const auto port = static_cast<uint16_t>(kFirstPort + hash_of_run(run_id) % kNumPorts);
  return HostPort{.host = host, .port = port}.to_string();
}

/// An address that was given, with a port of the run where it names the host alone.
Result<std::string> with_port(const std::string& given, const std::string& run_id) {
  if (given.find_first_of(":[]") != std::string::npos) return given;  // checked when it is used
  if (!run_id.empty()) return address_at(given, run_id);
  return bad("address", given, "host:port, because the launcher gives no job id to make a port of");
}

Result<Launch> read_torchrun(Variables& variables) {
  Launch launch = read_place(variables, Launcher::kTorchrun,
                             {"RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE"});
  const uint32_t port = variables.number("MASTER_PORT", 1, 65535, "a port from 1 to 65535");
  const std::string host = variables.text("MASTER_ADDR");
  MK_RETURN_IF_ERROR(variables.status());
  if (host.empty()) return bad("MASTER_ADDR", host, "the host of rank 0");
  // Without a rendezvous of torchrun's own its run id is the same for all runs ("none"); and a
  // restarted run must not meet what is left of itself.
  launch.run_id = "torchrun " + variables.text("TORCHELASTIC_RUN_ID") + " restart " +
                  variables.text("TORCHELASTIC_RESTART_COUNT") + " at " + host + " " +
                  std::to_string(port);
  launch.address = address_at(is_on_one_host(launch) ? "127.0.0.1" : host, launch.run_id);
  return launch;
}

Result<Launch> read_mpi(Variables& variables, Launcher launcher, const Names& names,
                        std::initializer_list<const char*> job_ids) {
  Launch launch = read_place(variables, launcher, names);
  MK_RETURN_IF_ERROR(variables.status());
  const std::string name = launcher_name(launcher);
  for (const char* job_id : job_ids) {
    if (launch.run_id.empty() && variables.has(job_id)) {
      launch.run_id = name + " " + variables.text(job_id);
    }
  }
  const std::string what_to_do =
      "; give the address of rank 0 (RendezvousOptions::address, --rendezvous), the same to all "
      "ranks, or use mkernel/mpi.h";
  if (launch.run_id.empty()) {
    launch.why_no_address = name + " gives no job id to make a port of" + what_to_do;
  } else if (!is_on_one_host(launch)) {
    launch.why_no_address =
        name + " does not say on which host rank 0 is, and " +
        (launch.local_world ? "only " + std::to_string(*launch.local_world) + " of " +
                                  std::to_string(launch.world) + " ranks are on this one"
                            : "which ranks are on this one is not known") +
        what_to_do;
  } else {
    launch.address = address_at("127.0.0.1", launch.run_id);
  }
  return launch;
}

Result<Launch> read_slurm(Variables& variables) {
  const bool has_step_tasks = variables.has("SLURM_STEP_NUM_TASKS");
  Launch launch =
      read_place(variables, Launcher::kSlurm,
                 {"SLURM_PROCID", has_step_tasks ? "SLURM_STEP_NUM_TASKS" : "SLURM_NTASKS",
                  "SLURM_LOCALID", nullptr});
  MK_RETURN_IF_ERROR(variables.status());
  const std::string job = variables.text("SLURM_JOB_ID");
  if (job.empty()) return bad("SLURM_JOB_ID", job, "the job's number");
  launch.run_id = "slurm " + job + " step " + variables.text("SLURM_STEP_ID");
  const std::string list = variables.text("SLURM_STEP_NODELIST");
  Result<FirstHost> host = first_host_of(list);
  if (!host) return bad("SLURM_STEP_NODELIST", list, host.status().message());
  if (host->is_only) launch.local_world = launch.world;
  launch.address = address_at(host->is_only ? "127.0.0.1" : host->name, launch.run_id);
  return launch;
}

std::optional<Result<Launch>> read_any(Variables& variables) {
  if (variables.has("RANK") &&
      (variables.has("MASTER_ADDR") || variables.has("TORCHELASTIC_RUN_ID"))) {
    return read_torchrun(variables);
  }
  if (variables.has("OMPI_COMM_WORLD_RANK")) {
    return read_mpi(variables, Launcher::kOpenMpi,
                    {"OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE", "OMPI_COMM_WORLD_LOCAL_RANK",
                     "OMPI_COMM_WORLD_LOCAL_SIZE"},
                    {"PMIX_NAMESPACE", "OMPI_MCA_ess_base_jobid"});
  }
  const bool is_step = variables.has("SLURM_PROCID") && variables.has("SLURM_STEP_ID");
  if (variables.has("PMI_RANK") && (variables.has("MPI_LOCALRANKID") || !is_step)) {
    return read_mpi(variables, Launcher::kMpich,
                    {"PMI_RANK", "PMI_SIZE", "MPI_LOCALRANKID", "MPI_LOCALNRANKS"}, {"PMI_JOBID"});
  }
  if (is_step) return read_slurm(variables);
  return {};
}

}  // namespace

const char* launcher_name(Launcher launcher) {
  switch (launcher) {
    case Launcher::kTorchrun: return "torchrun";
    case Launcher::kOpenMpi: return "mpirun (Open MPI)";
    case Launcher::kMpich: return "mpiexec (MPICH)";
    case Launcher::kSlurm: return "srun";
  }
  return "unknown";
}

Result<std::optional<Launch>> detect_launch(const Environment& environment) {
  Variables variables(environment);
  std::optional<Result<Launch>> launch = read_any(variables);
  if (!launch) return std::optional<Launch>();
  if (!*launch) return launch->status();
  return std::optional(std::move(**launch));
}

Result<RendezvousOptions> options_of_launch(RendezvousOptions given, const Launch& launch) {
  given.rank = launch.rank;
  given.world = launch.world;
  if (given.run_id.empty()) given.run_id = launch.run_id;
  if (given.address.empty()) {
    given.address = launch.address;
  } else {
    Result<std::string> address = with_port(given.address, given.run_id);
    if (!address) return address.status();
    given.address = std::move(*address);
  }
  if (given.address.empty() && !given.listener && given.world > 1) {
    return Status(Code::kInvalidArgument, launch.why_no_address);
  }
  return given;
}

Result<std::optional<RendezvousOptions>> rendezvous_of_launcher(const RendezvousOptions& given) {
  const auto launch = detect_launch([](const char* name) { return std::getenv(name); });
  if (!launch) return launch.status();
  if (!*launch || (*launch)->world == 1) return std::optional<RendezvousOptions>();
  Result<RendezvousOptions> options = options_of_launch(given, **launch);
  if (!options) return options.status();
  return std::optional<RendezvousOptions>(std::move(options.value()));
}

}  // namespace mkernel
