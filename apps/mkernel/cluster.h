// A cluster as the commands use it, in this process or in many: one thread per rank and phase.
#pragma once
#include <functional>
#include <memory>
#include <optional>
#include <type_traits>
#include <vector>

#include <mkernel/context.h>
#include <mkernel/rendezvous.h>

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

/// A cluster whose ranks are all in this process, or one of them. Every process makes the same
/// calls; what a call finds out, it finds out for all ranks.
class Cluster {
 public:
  /// Without `rendezvous` all ranks live here.
  static Result<Cluster> create(const ClusterOptions& options,
                                const std::optional<RendezvousOptions>& rendezvous);

  int size() const { return static_cast<int>(ranks_.size()); }
  bool in_processes() const { return in_processes_; }
  bool is_here(int r) const { return ranks_[static_cast<size_t>(r)] != nullptr; }
  Rank& rank(int r) { return *ranks_[static_cast<size_t>(r)]; }
  int first_here() const;

  /// Calls phase(r) for all ranks at once and waits for all. The end is the barrier between phases,
  /// which no rank that fails early can leave the others waiting at.
  /// Errors: the failure that caused the others, as far as can be told.
  Status on_all_ranks(const std::function<Status(int)>& phase);

  /// The same for phases with an outcome: what all ranks found, by rank.
  template <class T>
  Result<std::vector<T>> collect(const std::function<Result<T>(int)>& phase) {
    static_assert(std::is_trivially_copyable_v<T>);
    std::vector<T> found(ranks_.size());
    MK_RETURN_IF_ERROR(on_all_ranks([&](int r) -> Status {
      Result<T> one = phase(r);
      if (one) found[static_cast<size_t>(r)] = one.value();
      return one.status();
    }));
    MK_RETURN_IF_ERROR(exchange(reinterpret_cast<char*>(found.data()), sizeof(T)));
    return found;
  }

 private:
  Status add(Context context);
  /// Fills in, by rank, the records of the ranks that live elsewhere.
  Status exchange(char* records, size_t bytes);

  std::vector<std::unique_ptr<Rank>> ranks_;  // by rank; null elsewhere; devices refer to contexts
  bool in_processes_ = false;
};

}  // namespace mkernel::app
