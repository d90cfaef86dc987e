// A cluster with one case on it: what check and bench set up alike.
#pragma once
#include <memory>
#include <vector>

#include "machine.h"
#include "operators.h"

namespace mkernel::app {

/// The worst element of a whole command, and where it is.
struct WorstError {
  Finding finding;
  int rank = 0;
  int64_t iteration = 0;

  void merge(const WorstError& other) {
    if (other.finding.worst.share > finding.worst.share) *this = other;
  }
};

struct Session {
  Arguments arguments;  // with device and transport as chosen
  Machine machine;
  const Operator* op = nullptr;
  int num_sets = 1;
  Cluster cluster;
  std::vector<std::unique_ptr<RankCase>> cases;  // by rank; they refer to the cluster's ranks

  /// GPUs that ranks are dealt to; 0 on the host.
  int num_gpus() const;
  RankCase& rank_case(int rank) { return *cases[static_cast<size_t>(rank)]; }
};

/// With as many sets of operands as memory allows, at most `max_sets`.
/// Errors: unavailable if the machine lacks the device, the transport or the memory.
Result<Session> open_session(const Arguments& arguments, int64_t max_sets);

/// Verifies one set on all ranks; with `plan_too`, also what the plans hold.
Result<WorstError> verify_set(Session& session, int set, int64_t iteration, bool plan_too);

}  // namespace mkernel::app
