// What GEMM+ReduceScatter and GEMM+AllReduce are measured against: their GEMM alone, NCCL's sum
// alone, and both in turn.
#include <array>

#include "cublas.h"
#include "gemm_reduce.h"
#include "gemm_reduce_case.h"
#include "nccl.h"

namespace mkernel::app {
namespace {

struct Kind {
  const char* name;
  bool multiplies;
  bool reduces;
};

constexpr std::array<Kind, 3> kKinds = {
    {{"gemm", true, false}, {"comm", false, true}, {"in_turn", true, true}}};

/// One baseline on all ranks.
class InTurn {
 public:
  InTurn(const Kind& kind, Cluster& cluster, std::span<const std::unique_ptr<RankCase>> cases,
         std::shared_ptr<Nccl> nccl)
      : kind_(kind), nccl_(std::move(nccl)), ranks_(cases.size()) {
    for (size_t r = 0; r < ranks_.size(); ++r) {
      ranks_[r].rank = &cluster.rank(static_cast<int>(r));
      ranks_[r].operands = static_cast<GemmReduceCase*>(cases[r].get());
    }
  }

  Status prepare() {
    for (OneRank& one : ranks_) {
      const CaseArguments& s = one.operands->arguments();
      MK_RETURN_IF_ERROR(one.operands->allocate(one.product, s.m, s.n));
      if (kind_.reduces)
        MK_RETURN_IF_ERROR(one.operands->allocate(one.c, one.operands->rows_c().count, s.n));
      // What is only summed is random too: zeros are faster.
      MK_RETURN_IF_ERROR(one.rank->device->fill_normal(
          one.product->view(), s.dtype, {s.seed, one.rank->context.rank(), -1, Array::kA},
          one.rank->handle()));
      if (kind_.multiplies) {
        Result<std::unique_ptr<Gemm>> gemm = create_cublas_gemm(one.product->view().data);
        if (!gemm) return gemm.status();
        one.gemm = std::move(gemm).value();
      }
      MK_RETURN_IF_ERROR(one.rank->synchronize());
    }
    return Status::ok();
  }

  Status poison(int rank) {
    OneRank& one = at(rank);
    const Matrix& out = kind_.reduces ? one.c->view() : one.product->view();
    return one.rank->device->fill_nan(out, one.operands->arguments().dtype, one.rank->handle());
  }

  Status enqueue(int set) {
    std::vector<ReducePart> parts;
    for (OneRank& one : ranks_) {
      if (kind_.multiplies)
        MK_RETURN_IF_ERROR(
            one.gemm->run(one.operands->own_product(set, one.product->view()), one.rank->handle()));
      if (kind_.reduces)
        parts.push_back({one.product->view().data, one.c->view().data, one.rank->handle()});
    }
    if (!kind_.reduces) return Status::ok();
    const CaseArguments& s = ranks_[0].operands->arguments();
    return nccl_->reduce(parts, static_cast<uint64_t>(s.m * s.n), s.dtype,
                         !ranks_[0].operands->gathers());
  }

  Result<Finding> verify(int rank, int set) {
    OneRank& one = at(rank);
    if (!kind_.multiplies) return Finding{};  // in_turn verifies the same calls
    const Result<Worst> worst =
        kind_.reduces ? one.operands->verify_sum(one.c->view(), one.operands->iteration(set),
                                                 rounded_at_every_step())
                      : one.operands->verify_own(one.product->view(), set);
    if (!worst) return worst.status();
    return Finding{kind_.name, worst.value()};
  }

 private:
  struct OneRank {
    Rank* rank = nullptr;
    GemmReduceCase* operands = nullptr;
    std::optional<MatrixBuffer> product, c;
    std::unique_ptr<Gemm> gemm;
  };

  OneRank& at(int rank) { return ranks_[static_cast<size_t>(rank)]; }

  /// NCCL rounds each rank's product, and may round after each addition.
  Finish rounded_at_every_step() const {
    Finish finish;
    finish.part_unit = 1.01 * static_cast<double>(ranks_.size()) *
                       ErrorBound::of(ranks_[0].operands->arguments().dtype, 1).unit;
    return finish;
  }

  Kind kind_;
  std::shared_ptr<Nccl> nccl_;
  std::vector<OneRank> ranks_;
};

/// NCCL between the ranks. Errors: unavailable, with the reason.
Result<std::shared_ptr<Nccl>> open_nccl_for(Cluster& cluster,
                                            std::span<const std::unique_ptr<RankCase>> cases) {
  if (cluster.rank(0).context.nodes() > 1)
    return Status(Code::kUnavailable, "there is more than one node");
  if (cluster.size() == 1) return Status(Code::kUnavailable, "one rank has nothing to sum");
  std::vector<const void*> memory;
  for (const std::unique_ptr<RankCase>& one : cases) {
    auto* operands = static_cast<GemmReduceCase*>(one.get());
    if (!operands->gathers() && operands->arguments().m % cluster.size() != 0)
      return Status(Code::kUnavailable, "the ranks have different numbers of rows");
    memory.push_back(operands->own_product(0, {}).b.data);
  }
  Result<std::unique_ptr<Nccl>> nccl = create_nccl(memory);
  if (!nccl) return nccl.status();
  return std::shared_ptr<Nccl>(std::move(nccl).value());
}

Baseline to_baseline(const char* name, const std::shared_ptr<InTurn>& work) {
  return {name, [work](int rank, int) { return work->poison(rank); },
          [work](int set) { return work->enqueue(set); },
          [work](int rank, int set) { return work->verify(rank, set); }};
}

}  // namespace

Result<Baselines> gemm_reduce_baselines(Cluster& cluster,
                                        std::span<const std::unique_ptr<RankCase>> cases,
                                        const std::string& wanted) {
  Baselines found;
  if (cluster.rank(0).context.device() == DeviceKind::kHost) {
    // Asked for by name, it cannot be had; among all, it is not missed.
    if (wanted != "all") found.left_out.push_back({wanted, "the host machine has no baselines"});
    return found;
  }
  std::optional<Result<std::shared_ptr<Nccl>>> nccl;  // opened once, and only where it is wanted
  for (const Kind& kind : kKinds) {
    if (wanted != "all" && wanted != kind.name) continue;
    if (kind.reduces && !nccl) nccl.emplace(open_nccl_for(cluster, cases));
    Status status = kind.reduces ? nccl->status() : Status::ok();
    if (status) {
      const auto work = std::make_shared<InTurn>(
          kind, cluster, cases, kind.reduces ? nccl->value() : std::shared_ptr<Nccl>());
      status = work->prepare();
      if (status) found.list.push_back(to_baseline(kind.name, work));
    }
    if (status.code() == Code::kUnavailable)
      found.left_out.push_back({kind.name, status.message()});
    else
      MK_RETURN_IF_ERROR(status);
  }
  if (wanted == "in_turn_chunked") found.left_out.push_back({wanted, "not for sums over ranks"});
  return found;
}

}  // namespace mkernel::app
