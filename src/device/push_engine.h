// Copies to peers by copy engine, beside a kernel on the caller's stream.
#pragma once
#include <cuda_runtime.h>

#include <array>
#include <memory>
#include <span>

#include <mkernel/status.h>

#include "protocol/engine_push.h"

namespace mkernel {

/// The streams of one rank's pushes. Works in stream capture: they join the captured stream.
/// Threads: one at a time.
class PushEngine {
 public:
  /// On the current device.
  static Result<std::unique_ptr<PushEngine>> create();
  ~PushEngine();
  PushEngine(const PushEngine&) = delete;
  PushEngine& operator=(const PushEngine&) = delete;

  /// Pushes enqueued from now on wait for what `stream` holds now, and for nothing later.
  Status fork(cudaStream_t stream);
  /// Enqueues the pushes of a launch whose own rows are at op.a.
  Status push(const AllGatherGemmWork& op, std::span<const EnginePush> pushes);
  /// What `stream` gets from now on waits for the pushes.
  Status join(cudaStream_t stream);

 private:
  PushEngine() = default;

  // Two copies at a time hide each other's start, and the small copy of a flag.
  static constexpr size_t kNumStreams = 2;
  std::array<cudaStream_t, kNumStreams> streams_{};
  std::array<cudaEvent_t, kNumStreams> done_{};
  cudaEvent_t forked_ = nullptr;
};

}  // namespace mkernel
