// One rank's part of a GEMM+ReduceScatter or GEMM+AllReduce case: what gemm_reduce.cc runs and the
// baselines take from it.
#pragma once
#include <optional>

#include <mkernel/operators.h>

#include "matrix_buffer.h"
#include "operators.h"

namespace mkernel::app {

class GemmReduceCase final : public RankCase {
 public:
  GemmReduceCase(Rank& rank, const CaseArguments& arguments, bool gathers)
      : rank_(rank), arguments_(arguments), gathers_(gathers) {}

  Status prepare(int num_sets) override;
  Status fill(int set, int64_t iteration) override;
  Status poison(int set) override;
  Status run(int set) override;
  Result<Finding> verify(int set, int64_t iteration) override;
  Result<Finding> verify_plan(int64_t) override { return Finding{}; }
  std::vector<NamedMatrix> arrays(int set) override;
  std::string plan() const override { return plan_->describe(); }

  // For baselines.
  const CaseArguments& arguments() const { return arguments_; }
  bool gathers() const { return gathers_; }
  RowRange rows_c() const { return gathers_ ? RowRange{0, arguments_.m} : own_rows(); }
  int64_t iteration(int set) { return at(set).iteration; }
  /// This rank's product of a set, into `c` [m, n].
  Product own_product(int set, const Matrix& c);
  /// Compares `c`, rows_c() of the sum of an iteration, with the product of all ranks' matrices
  /// laid side by side.
  Result<Worst> verify_sum(const Matrix& c, int64_t iteration, Finish finish);
  /// The same for this rank's product alone.
  Result<Worst> verify_own(const Matrix& c, int set);
  Status allocate(std::optional<MatrixBuffer>& out, int64_t rows, int64_t cols,
                  uint64_t element_bytes = kElementBytes);

 private:
  struct Set {
    std::optional<MatrixBuffer> a, b, c, bias, residual;
    int64_t iteration = 0;
  };

  Set& at(int set) { return sets_[static_cast<size_t>(set)]; }
  bool kn() const { return arguments_.b_layout == BLayout::kKN; }
  int world() const { return rank_.context.world_size(); }
  RowRange rows_of(int rank) const { return rows_of_rank(arguments_.m, world(), rank); }
  RowRange own_rows() const { return rows_of(rank_.context.rank()); }
  Status fill_array(const Matrix& out, int rank, int64_t iteration, Array array) {
    return rank_.device->fill_normal(out, arguments_.dtype,
                                     {arguments_.seed, rank, iteration, array}, rank_.handle());
  }
  Status gather(int64_t iteration);
  Finish finish() const;

  Rank& rank_;
  CaseArguments arguments_;
  bool gathers_;
  std::vector<Set> sets_;
  std::optional<MatrixBuffer> all_a_, all_b_, bias_, residual_;  // what the reference is made of
  std::unique_ptr<GemmReduce> plan_;
};

}  // namespace mkernel::app
