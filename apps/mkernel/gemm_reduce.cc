// GEMM+ReduceScatter and GEMM+AllReduce for check and bench. The sum over ranks of A * B is one
// product: of all ranks' A side by side and all B one below the other. Verification makes both
// again from the generator, so it depends on nothing that the operator could have damaged.
#include "gemm_reduce.h"

#include "gemm_reduce_case.h"

namespace mkernel::app {
namespace {

double matrix_bytes(int64_t rows, int64_t cols, double element_bytes = double{kElementBytes}) {
  return static_cast<double>(rows) * static_cast<double>(cols) * element_bytes;
}

double output_bytes(const CaseArguments& a) { return a.output == Output::kFp32 ? 4 : 2; }

int64_t rows_of_c(bool gathers, const CaseArguments& a, const ClusterOptions& cluster) {
  return gathers ? a.m : rows_of_rank(a.m, cluster.nodes * cluster.gpus, 0).count;
}

}  // namespace

Status GemmReduceCase::prepare(int num_sets) {
  const CaseArguments& s = arguments_;
  const GemmReduceShape shape{s.m,
                              s.n,
                              s.k,
                              s.dtype,
                              s.b_layout,
                              s.partials,
                              static_cast<float>(s.alpha),
                              s.bias,
                              s.residual,
                              s.activation,
                              s.output};
  const GemmReduceTuning tuning{.blocks = s.tuning.blocks,
                                .workspace_bytes = static_cast<uint64_t>(s.workspace_mib) << 20,
                                .round_tiles = static_cast<int>(s.round_tiles)};
  const auto keep = [&](auto plan) {
    using Plan = std::remove_reference_t<decltype(*plan)>;
    Status status = plan.status();
    if (plan) plan_ = std::make_unique<Plan>(std::move(plan).value());
    return status;
  };
  MK_RETURN_IF_ERROR(gathers_ ? keep(GemmAllReduce::create(rank_.context, shape, tuning))
                              : keep(GemmReduceScatter::create(rank_.context, shape, tuning)));
  const int64_t all_k = s.k * world();
  MK_RETURN_IF_ERROR(allocate(all_a_, s.m, all_k));
  MK_RETURN_IF_ERROR(allocate(all_b_, kn() ? all_k : s.n, kn() ? s.n : all_k));
  if (s.bias) MK_RETURN_IF_ERROR(allocate(bias_, 1, s.n));
  if (s.residual) MK_RETURN_IF_ERROR(allocate(residual_, s.m, s.n));
  for (int i = 0; i < num_sets; ++i) {
    Set& set = sets_.emplace_back();
    MK_RETURN_IF_ERROR(allocate(set.a, s.m, s.k));
    MK_RETURN_IF_ERROR(allocate(set.b, kn() ? s.k : s.n, kn() ? s.n : s.k));
    MK_RETURN_IF_ERROR(
        allocate(set.c, rows_c().count, s.n, s.output == Output::kFp32 ? 4 : kElementBytes));
    if (s.bias) MK_RETURN_IF_ERROR(allocate(set.bias, 1, s.n));
    if (s.residual) MK_RETURN_IF_ERROR(allocate(set.residual, own_rows().count, s.n));
  }
  return Status::ok();
}

Status GemmReduceCase::fill(int index, int64_t iteration) {
  Set& set = at(index);
  set.iteration = iteration;
  const int rank = rank_.context.rank();
  MK_RETURN_IF_ERROR(fill_array(set.a->view(), rank, iteration, Array::kA));
  MK_RETURN_IF_ERROR(fill_array(set.b->view(), rank, iteration, Array::kB));
  if (set.bias) MK_RETURN_IF_ERROR(fill_array(set.bias->view(), 0, iteration, Array::kBias));
  if (set.residual)
    MK_RETURN_IF_ERROR(fill_array(set.residual->view(), rank, iteration, Array::kResidual));
  return Status::ok();
}

Status GemmReduceCase::poison(int set) {
  Matrix c = at(set).c->view();
  if (arguments_.output == Output::kSame)
    return rank_.device->fill_nan(c, arguments_.dtype, rank_.handle());
  // Twice the bits of a bf16 NaN are an fp32 one.
  return rank_.device->fill_nan({c.data, c.rows, 2 * c.cols, 2 * c.ld}, DType::kBf16,
                                rank_.handle());
}

Status GemmReduceCase::run(int index) {
  const Set& set = at(index);
  GemmReduceOperands operands{set.a->view(), set.b->view(), set.c->view()};
  if (set.bias) operands.bias = set.bias->view();
  if (set.residual) operands.residual = set.residual->view();
  return plan_->run(rank_.handle(), operands);
}

Result<Finding> GemmReduceCase::verify(int set, int64_t iteration) {
  const Result<Worst> worst = verify_sum(at(set).c->view(), iteration, finish());
  if (!worst) return worst.status();
  return Finding{"c", worst.value()};
}

std::vector<NamedMatrix> GemmReduceCase::arrays(int index) {
  const Set& set = at(index);
  std::vector<NamedMatrix> list{{"a", set.a->view()},
                                {"b", set.b->view(), !kn()},
                                {"c", set.c->view(), false, arguments_.output == Output::kFp32}};
  if (set.bias) list.push_back({"bias", set.bias->view()});
  if (set.residual) list.push_back({"residual", set.residual->view()});
  return list;
}

/// Enqueues to make all ranks' matrices of an iteration again.
Status GemmReduceCase::gather(int64_t iteration) {
  const Matrix a = all_a_->view(), b = all_b_->view();
  const int64_t k = arguments_.k;
  for (int r = 0; r < world(); ++r) {
    auto* first_a = static_cast<uint16_t*>(a.data) + r * k;
    auto* first_b = static_cast<uint16_t*>(b.data) + r * k * (kn() ? b.ld : 1);
    MK_RETURN_IF_ERROR(fill_array({first_a, a.rows, k, a.ld}, r, iteration, Array::kA));
    MK_RETURN_IF_ERROR(
        fill_array({first_b, kn() ? k : b.rows, kn() ? b.cols : k, b.ld}, r, iteration, Array::kB));
    if (!residual_) continue;
    const Matrix all = residual_->view();
    auto* first = static_cast<uint16_t*>(all.data) + rows_of(r).begin * all.ld;
    MK_RETURN_IF_ERROR(
        fill_array({first, rows_of(r).count, all.cols, all.ld}, r, iteration, Array::kResidual));
  }
  return bias_ ? fill_array(bias_->view(), 0, iteration, Array::kBias) : Status::ok();
}

Finish GemmReduceCase::finish() const {
  Finish f;
  f.alpha = static_cast<float>(arguments_.alpha);
  f.activation = arguments_.activation;
  f.output = arguments_.output;
  if (bias_) f.bias = bias_->view();
  if (residual_) {
    f.residual = residual_->view();
    f.residual.data = static_cast<uint16_t*>(f.residual.data) + rows_c().begin * f.residual.ld;
  }
  // A rank's part is rounded where a node has several, and what they make of it once more where
  // there are several nodes.
  const int roundings = (rank_.context.gpus() > 1 ? 1 : 0) + (rank_.context.nodes() > 1 ? 1 : 0);
  if (arguments_.partials == Partials::k16Bit)
    f.part_unit = 1.01 * roundings * ErrorBound::of(arguments_.dtype, 1).unit;
  return f;
}

Product GemmReduceCase::own_product(int set, const Matrix& c) {
  return {at(set).a->view(), at(set).b->view(), c, arguments_.dtype, arguments_.b_layout, {}};
}

Result<Worst> GemmReduceCase::verify_sum(const Matrix& c, int64_t iteration, Finish finish) {
  MK_RETURN_IF_ERROR(gather(iteration));
  Matrix a = all_a_->view();
  a.data = static_cast<uint16_t*>(a.data) + rows_c().begin * a.ld;
  a.rows = rows_c().count;
  finish.parts = world();
  return rank_.device->verify({a, all_b_->view(), c, arguments_.dtype, arguments_.b_layout, finish},
                              rank_.handle());
}

Result<Worst> GemmReduceCase::verify_own(const Matrix& c, int set) {
  return rank_.device->verify(own_product(set, c), rank_.handle());
}

Status GemmReduceCase::allocate(std::optional<MatrixBuffer>& out, int64_t rows, int64_t cols,
                                uint64_t element_bytes) {
  Result<MatrixBuffer> buffer = MatrixBuffer::create(rank_.context, rows, cols, element_bytes);
  if (!buffer) return buffer.status();
  out.emplace(std::move(buffer).value());
  return Status::ok();
}

template <bool kGathers>
std::unique_ptr<RankCase> make_gemm_reduce(Rank& rank, const CaseArguments& arguments) {
  return std::make_unique<GemmReduceCase>(rank, arguments, kGathers);
}

template <bool kGathers>
double gemm_reduce_set_bytes(const CaseArguments& a, const ClusterOptions& cluster) {
  const int64_t own = rows_of_c(false, a, cluster);
  return matrix_bytes(a.m, a.k) + matrix_bytes(a.k, a.n) +
         matrix_bytes(rows_of_c(kGathers, a, cluster), a.n, output_bytes(a)) +
         (a.residual ? matrix_bytes(own, a.n) : 0) + (a.bias ? matrix_bytes(1, a.n) : 0);
}

template <bool kGathers>
double gemm_reduce_fixed_bytes(const CaseArguments& a, const ClusterOptions& cluster) {
  const double workspace =
      0x1p20 * (a.workspace_mib != 0 ? static_cast<double>(a.workspace_mib) : 256);
  const int64_t all_k = a.k * cluster.nodes * cluster.gpus;
  // The reference: all ranks' matrices; on the host also those rows of A in doubles.
  const bool host = cluster.device == DeviceKind::kHost;
  return workspace + matrix_bytes(a.m, all_k) + matrix_bytes(all_k, a.n) +
         (a.residual ? matrix_bytes(a.m, a.n) : 0) +
         (host ? 4 * matrix_bytes(rows_of_c(kGathers, a, cluster), all_k) : 0);
}

double gemm_reduce_baseline_bytes(const CaseArguments& a, const ClusterOptions& cluster) {
  if (cluster.device == DeviceKind::kHost) return 0;
  const bool sums = cluster.nodes == 1 && cluster.gpus > 1;
  return matrix_bytes(a.m, a.n) * (sums ? 5 : 1);
}

double gemm_reduce_flops(const CaseArguments& a) {
  return 2.0 * static_cast<double>(a.m) * static_cast<double>(a.n) * static_cast<double>(a.k);
}

template <bool kGathers>
double gemm_reduce_network_floor_us(const CaseArguments& a, const ClusterOptions& cluster) {
  if (cluster.nodes == 1 || cluster.loopback.link_gbs == 0) return 0;
  // A rank sends each rail peer, over a link of its own, that one's rows of the node's sum, and in
  // an all-reduce its own finished rows too.
  const int64_t rows = rows_of_c(false, a, cluster);
  const double bytes = matrix_bytes(rows, a.n, a.partials == Partials::kFp32 ? 4 : 2) +
                       (kGathers ? matrix_bytes(rows, a.n, output_bytes(a)) : 0);
  return bytes / (1e3 * cluster.loopback.link_gbs) + (kGathers ? 2 : 1) * cluster.loopback.link_us;
}

template std::unique_ptr<RankCase> make_gemm_reduce<false>(Rank&, const CaseArguments&);
template std::unique_ptr<RankCase> make_gemm_reduce<true>(Rank&, const CaseArguments&);
template double gemm_reduce_set_bytes<false>(const CaseArguments&, const ClusterOptions&);
template double gemm_reduce_set_bytes<true>(const CaseArguments&, const ClusterOptions&);
template double gemm_reduce_fixed_bytes<false>(const CaseArguments&, const ClusterOptions&);
template double gemm_reduce_fixed_bytes<true>(const CaseArguments&, const ClusterOptions&);
template double gemm_reduce_network_floor_us<false>(const CaseArguments&, const ClusterOptions&);
template double gemm_reduce_network_floor_us<true>(const CaseArguments&, const ClusterOptions&);

}  // namespace mkernel::app
