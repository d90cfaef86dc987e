// What the program that started this process says about the cluster: mpirun, torchrun or srun, each
// by its environment variables. A pure function of them.
//
// Which one counts where several are there, in this order:
//   torchrun   RANK, WORLD_SIZE, and MASTER_ADDR or TORCHELASTIC_RUN_ID. Its agents may
//              have been started by srun or mpirun, whose variables are then the agents'.
//   Open MPI   OMPI_COMM_WORLD_RANK, OMPI_COMM_WORLD_SIZE. In a Slurm allocation, Slurm's variables
//              are those of mpirun's daemons.
//   MPICH      PMI_RANK, PMI_SIZE, and MPI_LOCALRANKID or no SLURM_STEP_ID; also Intel MPI.
//   srun       SLURM_PROCID, and SLURM_STEP_ID: a batch script alone is not a task.
//
// Ports are made of the run id, from 20000 to 28999: below what systems give out by themselves, and
// away from MASTER_PORT (29500), where the store of torch listens.
#pragma once
#include <cstdint>
#include <functional>
#include <optional>
#include <string>

#include <mkernel/rendezvous.h>
#include <mkernel/status.h>

namespace mkernel {

/// As getenv: null if there is no such variable.
using Environment = std::function<const char*(const char* name)>;

enum class Launcher : uint8_t { kTorchrun, kOpenMpi, kMpich, kSlurm };
const char* launcher_name(Launcher launcher);  // "torchrun", "mpirun (Open MPI)", ...

struct Launch {
  Launcher launcher;
  uint32_t rank, world;
  // Among the ranks of this host, and how many they are; if the launcher says so.
  std::optional<uint32_t> local_rank, local_world;
  std::string run_id;          // empty: the launcher gives none
  std::string address;         // of rank 0; empty: it cannot be known from the environment
  std::string why_no_address;  // and what the user can do then
};

/// What the environment says; nothing if no launcher is recognised.
/// Errors:  invalid_argument if a variable is missing, malformed, or contradicts another: which,
///          its value, and what is allowed.
Result<std::optional<Launch>> detect_launch(const Environment& environment);

/// The options of a rank: what the user gave, and for the rest what the launcher said. The launcher
/// gives rank and world always; address and run_id where the user left them empty, and the port
/// where the address is a host alone. Errors:  invalid_argument if neither gave an address, and how
/// to give it.
Result<RendezvousOptions> options_of_launch(RendezvousOptions given, const Launch& launch);

/// The first host of a Slurm list, "node[007-010,12],gpu3" -> "node007", and whether it is all.
struct FirstHost {
  std::string name;
  bool is_only = false;
};
/// Errors:  invalid_argument if the list cannot be read.
Result<FirstHost> first_host_of(const std::string& list);

}  // namespace mkernel
