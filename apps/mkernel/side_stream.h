// A second stream of a rank, for baselines that overlap.
#pragma once
#include <memory>

#include <mkernel/context.h>

namespace mkernel::app {

/// Threads: one at a time.
class SideStream {
 public:
  virtual ~SideStream() = default;
  virtual StreamHandle handle() const = 0;
  /// What is enqueued here from now on waits for what `main` holds now.
  virtual Status follow(StreamHandle main) = 0;
  /// What is enqueued on `main` from now on waits for what this stream holds now.
  virtual Status lead(StreamHandle main) = 0;
};

/// On the GPU that holds `memory`.
Result<std::unique_ptr<SideStream>> create_side_stream(const void* memory);

}  // namespace mkernel::app
