// AllGather+GEMM for check and bench. Verification makes the gathered A again from the generator,
// so it depends on nothing that the operator could have damaged.
#include "ag_gemm.h"

#include "ag_gemm_case.h"

namespace mkernel::app {
namespace {

double matrix_bytes(int64_t rows, int64_t cols) {
  return static_cast<double>(rows) * static_cast<double>(cols) * double{kElementBytes};
}

int64_t most_rows_of_a_rank(const CaseArguments& arguments, const ClusterOptions& cluster) {
  return rows_of_rank(arguments.m, cluster.nodes * cluster.gpus, 0).count;
}

/// What the library allocates: a gathered A for each of two launches that overlap, or the one that
/// it lends to the caller; none where nothing is gathered. Its rows are padded to 16 bytes.
double work_space_bytes(const CaseArguments& a, const ClusterOptions& cluster) {
  const double slot = matrix_bytes(a.m, (a.k + 7) / 8 * 8);
  if (a.gather_a) return slot;
  return cluster.nodes * cluster.gpus > 1 ? 2 * slot : 0;
}

}  // namespace

Status AllGatherGemmCase::prepare(int num_sets) {
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

Status AllGatherGemmCase::fill(int set, int64_t iteration) {
  at(set).iteration = iteration;
  const int rank = rank_.context.rank();
  MK_RETURN_IF_ERROR(rank_.device->fill_normal(a(set), arguments_.dtype,
                                               key(rank, iteration, Array::kA), rank_.handle()));
  return rank_.device->fill_normal(b(set), arguments_.dtype, key(rank, iteration, Array::kB),
                                   rank_.handle());
}

Status AllGatherGemmCase::poison(int set) {
  return rank_.device->fill_nan(at(set).c->view(), arguments_.dtype, rank_.handle());
}

Status AllGatherGemmCase::run(int set) {
  return plan_->run(rank_.handle(), a(set), b(set), at(set).c->view());
}

Result<Finding> AllGatherGemmCase::verify(int set, int64_t iteration) {
  MK_RETURN_IF_ERROR(gather(iteration));
  const Result<Worst> worst = verify_product(gathered(), b(set), at(set).c->view());
  if (!worst) return worst.status();
  return Finding{"c", worst.value()};
}

Result<Finding> AllGatherGemmCase::verify_plan(int64_t iteration) {
  if (!arguments_.gather_a) return Finding{};
  MK_RETURN_IF_ERROR(gather(iteration));
  const Result<Matrix> got = plan_->gathered_a();
  if (!got) return got.status();
  const Result<Worst> worst =
      rank_.device->compare(got.value(), gathered(), arguments_.dtype, rank_.handle());
  if (!worst) return worst.status();
  return Finding{"gathered_a", worst.value()};
}

std::vector<NamedMatrix> AllGatherGemmCase::arrays(int set) {
  return {
      {"a", a(set)}, {"b", b(set), arguments_.b_layout == BLayout::kNK}, {"c", at(set).c->view()}};
}

Status AllGatherGemmCase::gather(int64_t iteration) {
  const Matrix whole = gathered();
  for (int r = 0; r < rank_.context.world_size(); ++r) {
    const RowRange rows = rows_of(r);
    auto* first = static_cast<uint16_t*>(whole.data) + rows.begin * whole.ld;
    MK_RETURN_IF_ERROR(rank_.device->fill_normal({first, rows.count, whole.cols, whole.ld},
                                                 arguments_.dtype, key(r, iteration, Array::kA),
                                                 rank_.handle()));
  }
  return Status::ok();
}

Result<Worst> AllGatherGemmCase::verify_product(const Matrix& a, const Matrix& b, const Matrix& c) {
  return rank_.device->verify(product(a, b, c), rank_.handle());
}

Status AllGatherGemmCase::allocate(std::optional<MatrixBuffer>& out, int64_t rows, int64_t cols) {
  Result<MatrixBuffer> buffer = MatrixBuffer::create(rank_.context, rows, cols);
  if (!buffer) return buffer.status();
  out.emplace(std::move(buffer).value());
  return Status::ok();
}

std::unique_ptr<RankCase> make_ag_gemm(Rank& rank, const CaseArguments& arguments) {
  return std::make_unique<AllGatherGemmCase>(rank, arguments);
}

double ag_gemm_set_bytes(const CaseArguments& a, const ClusterOptions& cluster) {
  return matrix_bytes(most_rows_of_a_rank(a, cluster), a.k) + matrix_bytes(a.k, a.n) +
         matrix_bytes(a.m, a.n);
}

double ag_gemm_fixed_bytes(const CaseArguments& a, const ClusterOptions& cluster) {
  // Beside the work space the gathered A of the reference; on the host also that in doubles.
  const bool host = cluster.device == DeviceKind::kHost;
  return work_space_bytes(a, cluster) + matrix_bytes(a.m, a.k) * (host ? 5 : 1);
}

double ag_gemm_baseline_bytes(const CaseArguments& a, const ClusterOptions& cluster) {
  if (cluster.device == DeviceKind::kHost) return 0;
  // Each has outputs of its own: gemm C, comm the gathered A, the two that do both in turn both.
  const bool gathers = cluster.nodes == 1 && cluster.gpus > 1;
  return matrix_bytes(a.m, a.n) * (gathers ? 3 : 1) + matrix_bytes(a.m, a.k) * (gathers ? 3 : 0);
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
