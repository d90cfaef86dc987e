// A virtual cluster in this process, as the commands use it: one thread per rank and phase.
#pragma once
#include <functional>
#include <memory>
#include <vector>

#include <mkernel/context.h>

#include "device.h"

namespace mkernel::app {

/// One rank with what the application needs beside its context.
struct Rank {
  Context context;
  std::unique_ptr<Device> device;
  Stream stream;

  StreamHandle handle() const { return stream.handle(); }
  Status synchronize() { return context.synchronize(handle()); }
};

class Cluster {
 public:
  static Result<Cluster> create(const ClusterOptions& options);

  int size() const { return static_cast<int>(ranks_.size()); }
  Rank& rank(int r) { return *ranks_[static_cast<size_t>(r)]; }

  /// Calls phase(r) for all ranks at once and waits for all. The threads' end is the barrier
  /// between phases, which no rank that fails early can leave the others waiting at.
  /// Errors: the failure that caused the others, as far as can be told.
  Status on_all_ranks(const std::function<Status(int)>& phase);

 private:
  std::vector<std::unique_ptr<Rank>> ranks_;  // pointers: devices refer to their context
};

}  // namespace mkernel::app
