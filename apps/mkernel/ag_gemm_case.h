// One rank's part of an AllGather+GEMM case: what ag_gemm.cc runs and its baselines take from it.
#pragma once
#include <optional>

#include <mkernel/operators.h>

#include "matrix_buffer.h"
#include "operators.h"

namespace mkernel::app {

class AllGatherGemmCase final : public RankCase {
 public:
  AllGatherGemmCase(Rank& rank, const CaseArguments& arguments)
      : rank_(rank), arguments_(arguments) {}

  Status prepare(int num_sets) override;
  Status fill(int set, int64_t iteration) override;
  Status poison(int set) override;
  Status run(int set) override;
  Result<Finding> verify(int set, int64_t iteration) override;
  Result<Finding> verify_plan(int64_t iteration) override;
  std::vector<NamedMatrix> arrays(int set) override;
  std::string plan() const override { return plan_->describe(); }

  // For baselines.
  Rank& rank() { return rank_; }
  const CaseArguments& arguments() const { return arguments_; }
  const Matrix& a(int set) { return at(set).a->view(); }
  const Matrix& b(int set) { return at(set).b->view(); }
  /// For which the set was filled.
  int64_t iteration(int set) { return at(set).iteration; }
  /// Enqueues to make all ranks' rows of A of an iteration again, into gathered().
  Status gather(int64_t iteration);
  const Matrix& gathered() const { return gathered_->view(); }
  /// Compares c with the product of `a`, rows of gathered(), and b.
  Result<Worst> verify_product(const Matrix& a, const Matrix& b, const Matrix& c);
  Product product(const Matrix& a, const Matrix& b, const Matrix& c) const {
    return {a, b, c, arguments_.dtype, arguments_.b_layout};
  }
  Status allocate(std::optional<MatrixBuffer>& out, int64_t rows, int64_t cols);

 private:
  struct Set {
    std::optional<MatrixBuffer> a, b, c;
    int64_t iteration = 0;
  };

  Set& at(int set) { return sets_[static_cast<size_t>(set)]; }
  RowRange rows_of(int rank) const {
    return rows_of_rank(arguments_.m, rank_.context.world_size(), rank);
  }
  ArrayKey key(int rank, int64_t iteration, Array array) const {
    return {arguments_.seed, rank, iteration, array};
  }

  Rank& rank_;
  CaseArguments arguments_;
  std::vector<Set> sets_;
  std::optional<MatrixBuffer> gathered_;
  std::optional<AllGatherGemm> plan_;
};

}  // namespace mkernel::app
