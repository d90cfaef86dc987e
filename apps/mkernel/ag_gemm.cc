// AllGather+GEMM for check and bench. Verification makes the gathered A again from the generator,
// so it depends on nothing that the operator could have damaged.
#include "ag_gemm.h"

#include <mkernel/operators.h>

#include "cublas.h"
#include "matrix_buffer.h"

namespace mkernel::app {
namespace {

double matrix_bytes(int64_t rows, int64_t cols) {
  return static_cast<double>(rows) * static_cast<double>(cols) * double{kElementBytes};
}

int64_t most_rows_of_a_rank(const CaseArguments& arguments, const ClusterOptions& cluster) {
  return rows_of_rank(arguments.m, cluster.nodes * cluster.gpus, 0).count;
}

class AllGatherGemmCase final : public RankCase {
 public:
  AllGatherGemmCase(Rank& rank, const CaseArguments& arguments)
      : rank_(rank), arguments_(arguments) {}

  Status prepare(int num_sets) override {
    const CaseArguments& s = arguments_;
    Result<AllGatherGemm> plan = AllGatherGemm::create(
        rank_.context, {s.m, s.n, s.k, s.dtype, s.b_layout, s.gather_a}, s.tuning);
    if (!plan) return plan.status();
    plan_.emplace(std::move(plan).value());
    MK_RETURN_IF_ERROR(allocate(gathered_, s.m, s.k));
    const bool kn = s.b_layout == BLayout::kKN;
    for (int i = 0; i < num_sets; ++i) {
      Set& set = sets_.emplace_back();
      MK_RETURN_IF_ERROR(allocate(set.a, rows_of(rank_.context.rank()).count, s.k));
      MK_RETURN_IF_ERROR(allocate(set.b, kn ? s.k : s.n, kn ? s.n : s.k));
      MK_RETURN_IF_ERROR(allocate(set.c, s.m, s.n));
    }
    return Status::ok();
  }

  Status fill(int set, int64_t iteration) override {
    MK_RETURN_IF_ERROR(rank_.device->fill_normal(at(set).a->view(), arguments_.dtype,
                                                 key(rank_.context.rank(), iteration, Array::kA),
                                                 rank_.handle()));
    return rank_.device->fill_normal(at(set).b->view(), arguments_.dtype,
                                     key(rank_.context.rank(), iteration, Array::kB),
                                     rank_.handle());
  }

  Status poison(int set) override {
    return rank_.device->fill_nan(at(set).c->view(), arguments_.dtype, rank_.handle());
  }

  Status run(int set) override {
    return plan_->run(rank_.handle(), at(set).a->view(), at(set).b->view(), at(set).c->view());
  }

  Result<Finding> verify(int set, int64_t iteration) override {
    MK_RETURN_IF_ERROR(gather(iteration));
    return verify_product(at(set).b->view(), at(set).c->view());
  }

  Result<Finding> verify_plan(int64_t iteration) override {
    if (!arguments_.gather_a) return Finding{};
    MK_RETURN_IF_ERROR(gather(iteration));
    Result<Matrix> got = plan_->gathered_a();
    if (!got) return got.status();
    Result<Worst> worst =
        rank_.device->compare(got.value(), gathered_->view(), arguments_.dtype, rank_.handle());
    if (!worst) return worst.status();
    return Finding{"gathered_a", worst.value()};
  }

  std::vector<NamedMatrix> arrays(int set) override {
    return {{"a", at(set).a->view()},
            {"b", at(set).b->view(), arguments_.b_layout == BLayout::kNK},
            {"c", at(set).c->view()}};
  }

  Result<std::vector<Baseline>> baselines() override {
    std::vector<Baseline> list;
    if (rank_.context.device() == DeviceKind::kHost) return list;
    MK_RETURN_IF_ERROR(gather(0));  // random normal, like every operand
    MK_RETURN_IF_ERROR(allocate(gemm_c_, arguments_.m, arguments_.n));
    Result<std::unique_ptr<Gemm>> gemm = create_cublas_gemm(gemm_c_->view().data);
    if (!gemm) return gemm.status();
    gemm_ = std::move(gemm).value();
    list.push_back({"gemm", [this](int set) { return run_gemm(set); },
                    [this](int set) -> Result<Finding> {
                      MK_RETURN_IF_ERROR(gather(0));
                      return verify_product(at(set).b->view(), gemm_c_->view());
                    }});
    return list;
  }

  std::string plan() const override { return plan_->describe(); }

 private:
  struct Set {
    std::optional<MatrixBuffer> a, b, c;
  };

  Set& at(int set) { return sets_[static_cast<size_t>(set)]; }

  RowRange rows_of(int rank) const {
    return rows_of_rank(arguments_.m, rank_.context.world_size(), rank);
  }

  ArrayKey key(int rank, int64_t iteration, Array array) const {
    return {arguments_.seed, rank, iteration, array};
  }

  Status allocate(std::optional<MatrixBuffer>& out, int64_t rows, int64_t cols) {
    Result<MatrixBuffer> buffer = MatrixBuffer::create(rank_.context, rows, cols);
    if (!buffer) return buffer.status();
    out.emplace(std::move(buffer).value());
    return Status::ok();
  }

  /// All ranks' rows of A of an iteration, into gathered_.
  Status gather(int64_t iteration) {
    const Matrix whole = gathered_->view();
    for (int r = 0; r < rank_.context.world_size(); ++r) {
      const RowRange rows = rows_of(r);
      auto* first = static_cast<uint16_t*>(whole.data) + rows.begin * whole.ld;
      MK_RETURN_IF_ERROR(rank_.device->fill_normal({first, rows.count, whole.cols, whole.ld},
                                                   arguments_.dtype, key(r, iteration, Array::kA),
                                                   rank_.handle()));
    }
    return Status::ok();
  }

  Product product(const Matrix& b, const Matrix& c) const {
    return {gathered_->view(), b, c, arguments_.dtype, arguments_.b_layout};
  }

  Result<Finding> verify_product(const Matrix& b, const Matrix& c) {
    Result<Worst> worst = rank_.device->verify(product(b, c), rank_.handle());
    if (!worst) return worst.status();
    return Finding{"c", worst.value()};
  }

  Status run_gemm(int set) {
    return gemm_->run(product(at(set).b->view(), gemm_c_->view()), rank_.handle());
  }

  Rank& rank_;
  CaseArguments arguments_;
  std::vector<Set> sets_;
  std::optional<MatrixBuffer> gathered_;
  std::optional<MatrixBuffer> gemm_c_;
  std::unique_ptr<Gemm> gemm_;
  std::optional<AllGatherGemm> plan_;
};

}  // namespace

std::unique_ptr<RankCase> make_ag_gemm(Rank& rank, const CaseArguments& arguments) {
  return std::make_unique<AllGatherGemmCase>(rank, arguments);
}

double ag_gemm_set_bytes(const CaseArguments& a, const ClusterOptions& cluster) {
  return matrix_bytes(most_rows_of_a_rank(a, cluster), a.k) + matrix_bytes(a.k, a.n) +
         matrix_bytes(a.m, a.n);
}

double ag_gemm_fixed_bytes(const CaseArguments& a, const ClusterOptions& cluster) {
  // The library's work space holds a gathered A too. On the host the reference is in doubles; on a
  // GPU the baseline has an output of its own.
  const bool host = cluster.device == DeviceKind::kHost;
  return matrix_bytes(a.m, a.k) * (host ? 6 : 2) + (host ? 0 : matrix_bytes(a.m, a.n));
}

double ag_gemm_flops(const CaseArguments& a) {
  return 2.0 * static_cast<double>(a.m) * static_cast<double>(a.n) * static_cast<double>(a.k);
}

double ag_gemm_network_floor_us(const CaseArguments& a, const ClusterOptions& cluster) {
  if (cluster.nodes == 1 || cluster.loopback.link_gbs == 0) return 0;
  // Each rank's rows cross to every other node once, one pair of ranks per node.
  return matrix_bytes(most_rows_of_a_rank(a, cluster), a.k) / (1e3 * cluster.loopback.link_gbs) +
         cluster.loopback.link_us;
}

}  // namespace mkernel::app
