// Collectives by the vendor's library between the GPUs of this process: baselines that a fused
// operator is measured against. NCCL is opened at run time, never linked or included, so that
// neither a build nor a start needs it.
#pragma once
#include <memory>
#include <vector>

#include <mkernel/context.h>
#include <mkernel/tensor.h>

namespace mkernel::app {

/// One rank's part of an all-gather; `to` takes what all ranks give, in rank order.
struct GatherPart {
  const void* from = nullptr;
  void* to = nullptr;
  StreamHandle stream = nullptr;
};

/// One rank's part of a sum over all ranks.
struct ReducePart {
  const void* from = nullptr;
  void* to = nullptr;
  StreamHandle stream = nullptr;
};

/// Threads: one at a time, for all ranks.
class Nccl {
 public:
  virtual ~Nccl() = default;
  /// Enqueues one all-gather on every rank's stream, `bytes` from each; parts by rank.
  virtual Status all_gather(const std::vector<GatherPart>& parts, uint64_t bytes) = 0;
  /// Enqueues a sum of `elements` of each rank; with `scatter` each rank gets its part, else all.
  virtual Status reduce(const std::vector<ReducePart>& parts, uint64_t elements, DType dtype,
                        bool scatter) = 0;
};

/// For ranks that live where their `memory` is.
/// Errors: unavailable if ranks share a GPU, or if NCCL is not on this machine or does not start.
Result<std::unique_ptr<Nccl>> create_nccl(const std::vector<const void*>& memory);

}  // namespace mkernel::app
