// The operators that check and bench know: one entry each. A new one adds a file like ag_gemm.cc
// and a line in operators.cc.
#pragma once
#include <cstring>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "arguments.h"
#include "cluster.h"

namespace mkernel::app {

/// What a comparison found: its worst element, and in which array. A plain record, so that
/// processes can tell each other.
struct Finding {
  Finding() = default;
  Finding(const char* name, const Worst& found) : worst(found) {
    std::strncpy(array, name, sizeof array - 1);
  }
  char array[24] = {};
  Worst worst;
};

/// Something to time beside the fused operator. It may hold what belongs to the cluster.
struct Baseline {
  std::string name;
  std::function<Status(int rank, int set)> poison;  // NaN into its outputs
  std::function<Status(int set)> enqueue;           // on the streams of all ranks, by one thread
  std::function<Result<Finding>(int rank, int set)> verify;  // of the latest enqueue, for its set
};

/// A baseline that this machine or this case does not allow.
struct LeftOut {
  std::string name;
  std::string why;
};

struct Baselines {
  std::vector<Baseline> list;
  std::vector<LeftOut> left_out;
};

struct NamedMatrix {
  std::string name;
  Matrix matrix;            // without padding
  bool transposed = false;  // in memory: who reads it wants it the other way round
  bool fp32 = false;        // elements of 4 bytes
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
  double (*baseline_bytes)(const CaseArguments& arguments, const ClusterOptions& cluster);
  double (*flops_per_rank)(const CaseArguments& arguments);
  /// The baselines of a name, or "all"; none on the host. Cases as `make` made them, by rank.
  Result<Baselines> (*baselines)(Cluster& cluster, std::span<const std::unique_ptr<RankCase>> cases,
                                 const std::string& wanted);
  /// The time that the declared network link alone needs; 0 where none is declared.
  double (*network_floor_us)(const CaseArguments& arguments, const ClusterOptions& cluster);
};

std::span<const Operator> operators();
/// Null if there is none of that name.
const Operator* find_operator(const std::string& name);

}  // namespace mkernel::app
