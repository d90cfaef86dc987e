// The operators that check and bench know: one entry each. A new one adds a file like ag_gemm.cc
// and a line in operators.cc.
#pragma once
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "arguments.h"
#include "cluster.h"

namespace mkernel::app {

/// What a comparison found: its worst element, and in which array.
struct Finding {
  std::string array;
  Worst worst;
};

/// Something to time beside the fused operator, for one rank.
struct Baseline {
  std::string name;  // gemm, comm, in_turn, ...
  std::function<Status(int set)> enqueue;
  std::function<Result<Finding>(int set)> verify;  // of the latest enqueue, for its set
};

struct NamedMatrix {
  std::string name;
  Matrix matrix;            // without padding
  bool transposed = false;  // in memory: who reads it wants it the other way round
};

/// One rank's part of a case: a plan and `num_sets` sets of operands. Every method is a phase that
/// all ranks go through together; fill, poison and run enqueue on the rank's stream.
class RankCase {
 public:
  virtual ~RankCase() = default;
  virtual Status prepare(int num_sets) = 0;
  /// New random inputs, different for each rank and iteration.
  virtual Status fill(int set, int64_t iteration) = 0;
  /// NaN into the outputs.
  virtual Status poison(int set) = 0;
  virtual Status run(int set) = 0;
  /// Compares the set's outputs; `iteration` is the one it was filled for.
  virtual Result<Finding> verify(int set, int64_t iteration) = 0;
  /// Compares what the plan itself holds after the latest run; finds nothing where that is nothing.
  virtual Result<Finding> verify_plan(int64_t iteration) = 0;
  virtual std::vector<NamedMatrix> arrays(int set) = 0;
  /// Empty where there is none; unavailable if what it needs is not on this machine.
  virtual Result<std::vector<Baseline>> baselines() = 0;
  virtual std::string plan() const = 0;
};

struct Operator {
  const char* name;
  const char* summary;
  std::unique_ptr<RankCase> (*make)(Rank& rank, const CaseArguments& arguments);
  /// Memory of one set of operands of one rank, and what a rank needs once. As estimates they are
  /// doubles: what the largest sizes ask for does not fit 64 bits.
  double (*set_bytes)(const CaseArguments& arguments, const ClusterOptions& cluster);
  double (*fixed_bytes)(const CaseArguments& arguments, const ClusterOptions& cluster);
  double (*flops_per_rank)(const CaseArguments& arguments);
  /// The time that the declared network link alone needs; 0 where none is declared.
  double (*network_floor_us)(const CaseArguments& arguments, const ClusterOptions& cluster);
};

std::span<const Operator> operators();
/// Null if there is none of that name.
const Operator* find_operator(const std::string& name);

}  // namespace mkernel::app
