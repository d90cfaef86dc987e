// What carries out a rank's launches: the host machine or a GPU. One Machine per rank; several may
// share a GPU.
#pragma once
#include <array>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include <mkernel/context.h>
#include <mkernel/options.h>
#include <mkernel/status.h>

#include "memory/device_memory.h"
#include "protocol/all_gather_gemm.h"
#include "protocol/engine_push.h"
#include "protocol/gemm_reduce_work.h"
#include "schedule/tile_choice.h"

namespace mkernel {

namespace detail {
/// A stream that the library made.
class StreamImpl {
 public:
  virtual ~StreamImpl() = default;
  virtual StreamHandle handle() const = 0;
};
}  // namespace detail

/// What a plan has to know of the machine it is made for.
struct MachineShape {
  uint32_t max_blocks;   // blocks that can be resident for this rank
  uint32_t blocks;       // a good number of blocks
  uint32_t comm_blocks;  // of these, a good number to communicate
  uint32_t tile_m;       // rows of the output tiles of its GEMM
  /// Their columns, the widest first; the plan chooses.
  std::array<TileWidth, 2> tile_widths;
  uint32_t band;         // tile rows per band of the tile order
  uint64_t chunk_bytes;  // a good size of one message
  bool copy_engines;     // can push to local peers beside the kernel
  uint32_t pad_rows;     // partial sums in work space are padded to multiples of these
  uint32_t pad_cols;
};

class Machine {
 public:
  virtual ~Machine() = default;
  virtual MachineShape shape() const = 0;
  virtual DeviceMemory& memory() = 0;
  /// Which GPU it is, told apart over processes and hosts; empty where any number may share one.
  virtual std::string device_id() const = 0;
  virtual Result<std::unique_ptr<detail::StreamImpl>> create_stream() = 0;
  virtual Status synchronize(StreamHandle stream) = 0;
  /// Enqueues one launch: its blocks, and beside them the pushes. It ends when both are done.
  virtual Status launch(const AllGatherGemmWork& op, std::span<const EnginePush> pushes,
                        StreamHandle stream) = 0;
  virtual Status launch(const GemmReduceWork& op, StreamHandle stream) = 0;
};

using Machines = std::vector<std::unique_ptr<Machine>>;

/// A machine for each of `num_ranks` ranks of this process.
Machines create_host_machines(int num_ranks);

/// The same on GPUs: ranks are dealt to them in turn, and ranks of one GPU share its SMs evenly.
/// Errors: unavailable if this build or this computer has no GPU that can carry them.
Result<Machines> create_cuda_machines(int num_ranks);

/// The machine of a process that has one rank and its GPU to itself: the `index`-th GPU that the
/// process sees, counted around.
Result<Machines> create_cuda_machine_of_process(int index);

/// GPUs that this build and this computer can use.
int num_cuda_devices();

}  // namespace mkernel
