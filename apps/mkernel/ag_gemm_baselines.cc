// What AllGather+GEMM is measured against: its GEMM alone on an A that is gathered already, NCCL's
// all-gather of A alone, and both in turn, whole or in chunks that overlap.
#include <array>

#include "ag_gemm.h"
#include "ag_gemm_case.h"
#include "cublas.h"
#include "nccl.h"
#include "side_stream.h"

namespace mkernel::app {
namespace {

struct Kind {
  const char* name;
  bool gathers;
  bool multiplies;
  int num_chunks;  // of every rank's rows; above 1: the GEMM of each beside the next all-gather
};

constexpr std::array<Kind, 4> kKinds = {{{"gemm", false, true, 1},
                                         {"comm", true, false, 1},
                                         {"in_turn", true, true, 1},
                                         {"in_turn_chunked", true, true, 4}}};

Matrix rows_of(const Matrix& whole, RowRange rows) {
  auto* first = static_cast<uint16_t*>(whole.data) + rows.begin * whole.ld;
  return {first, rows.count, whole.cols, whole.ld};
}

/// Rows of an output, and which rows of the gathered A they are or come from.
struct Piece {
  RowRange got;
  RowRange want;
};

/// One baseline on all ranks. Chunks come out chunk by chunk, and within each rank by rank: NCCL
/// gathers to one place, and one GEMM per chunk is the fastest that follows.
class InTurn {
 public:
  InTurn(const Kind& kind, Cluster& cluster, std::span<const std::unique_ptr<RankCase>> cases,
         std::shared_ptr<Nccl> nccl)
      : kind_(kind), nccl_(std::move(nccl)), ranks_(cases.size()) {
    for (size_t r = 0; r < ranks_.size(); ++r) {
      ranks_[r].rank = &cluster.rank(static_cast<int>(r));
      ranks_[r].operands = static_cast<AllGatherGemmCase*>(cases[r].get());
    }
  }

  Status prepare() {
    const CaseArguments& s = ranks_[0].operands->arguments();
    for (OneRank& one : ranks_) {
      if (kind_.gathers) MK_RETURN_IF_ERROR(one.operands->allocate(one.a, s.m, s.k));
      if (kind_.multiplies) {
        MK_RETURN_IF_ERROR(one.operands->allocate(one.c, s.m, s.n));
        Result<std::unique_ptr<Gemm>> gemm = create_cublas_gemm(one.c->view().data);
        if (!gemm) return gemm.status();
        one.gemm = std::move(gemm).value();
      }
      if (kind_.num_chunks > 1) {
        Result<std::unique_ptr<SideStream>> side = create_side_stream(one.a->view().data);
        if (!side) return side.status();
        one.side = std::move(side).value();
      }
      if (!kind_.gathers) MK_RETURN_IF_ERROR(one.operands->gather(0));  // its A: like every A
      MK_RETURN_IF_ERROR(one.rank->synchronize());
    }
    return Status::ok();
  }

  Status poison(int rank) {
    OneRank& one = at(rank);
    for (const auto* output : {&one.a, &one.c}) {
      if (!*output) continue;
      MK_RETURN_IF_ERROR(one.rank->device->fill_nan(
          (*output)->view(), one.operands->arguments().dtype, one.rank->handle()));
    }
    return Status::ok();
  }

  Status enqueue(int set) {
    for (OneRank& one : ranks_)
      if (one.side) MK_RETURN_IF_ERROR(one.side->follow(one.rank->handle()));
    for (int chunk = 0; chunk < kind_.num_chunks; ++chunk) {
      if (kind_.gathers) MK_RETURN_IF_ERROR(gather_chunk(set, chunk));
      for (OneRank& one : ranks_) {
        if (one.side) MK_RETURN_IF_ERROR(one.side->lead(one.rank->handle()));
        if (kind_.multiplies) MK_RETURN_IF_ERROR(multiply_chunk(one, set, chunk));
      }
    }
    return Status::ok();
  }

  Result<Finding> verify(int rank, int set) {
    OneRank& one = at(rank);
    MK_RETURN_IF_ERROR(one.operands->gather(kind_.gathers ? one.operands->iteration(set) : 0));
    Worst worst;
    for (const Piece& piece : pieces()) {
      const Result<Worst> found = verify_piece(one, set, piece);
      if (!found) return found.status();
      Worst moved = found.value();
      moved.row += piece.got.begin;
      worst.merge(moved);
    }
    return Finding{kind_.name, worst};
  }

 private:
  struct OneRank {
    Rank* rank = nullptr;
    AllGatherGemmCase* operands = nullptr;
    std::optional<MatrixBuffer> a, c;
    std::unique_ptr<Gemm> gemm;
    std::unique_ptr<SideStream> side;
  };

  OneRank& at(int rank) { return ranks_[static_cast<size_t>(rank)]; }
  int64_t num_rows() const { return ranks_[0].operands->arguments().m; }
  int world() const { return static_cast<int>(ranks_.size()); }

  /// Of every rank's own rows.
  RowRange own_rows(int chunk) const {
    return rows_of_rank(num_rows() / world(), kind_.num_chunks, chunk);
  }

  /// Of the outputs. One chunk is all rows, also where the ranks have different numbers of them.
  RowRange all_rows(int chunk) const {
    if (kind_.num_chunks == 1) return {0, num_rows()};
    const RowRange own = own_rows(chunk);
    return {world() * own.begin, world() * own.count};
  }

  std::vector<Piece> pieces() const {
    if (kind_.num_chunks == 1) return {{all_rows(0), all_rows(0)}};
    std::vector<Piece> list;
    for (int chunk = 0; chunk < kind_.num_chunks; ++chunk) {
      const RowRange own = own_rows(chunk);
      for (int r = 0; r < world(); ++r)
        list.push_back({{all_rows(chunk).begin + r * own.count, own.count},
                        {r * (num_rows() / world()) + own.begin, own.count}});
    }
    return list;
  }

  Status gather_chunk(int set, int chunk) {
    std::vector<GatherPart> parts;
    for (OneRank& one : ranks_) {
      parts.push_back({rows_of(one.operands->a(set), own_rows(chunk)).data,
                       rows_of(one.a->view(), all_rows(chunk)).data,
                       one.side ? one.side->handle() : one.rank->handle()});
    }
    const auto elems = own_rows(chunk).count * ranks_[0].operands->arguments().k;
    return nccl_->all_gather(parts, static_cast<uint64_t>(elems) * kElementBytes);
  }

  Status multiply_chunk(OneRank& one, int set, int chunk) {
    const RowRange rows = all_rows(chunk);
    if (rows.count == 0) return Status::ok();
    const Matrix& a = kind_.gathers ? one.a->view() : one.operands->gathered();
    return one.gemm->run(
        one.operands->product(rows_of(a, rows), one.operands->b(set), rows_of(one.c->view(), rows)),
        one.rank->handle());
  }

  Result<Worst> verify_piece(OneRank& one, int set, const Piece& piece) {
    const Matrix want = rows_of(one.operands->gathered(), piece.want);
    if (kind_.multiplies)
      return one.operands->verify_product(want, one.operands->b(set),
                                          rows_of(one.c->view(), piece.got));
    return one.rank->device->compare(rows_of(one.a->view(), piece.got), want,
                                     one.operands->arguments().dtype, one.rank->handle());
  }

  Kind kind_;
  std::shared_ptr<Nccl> nccl_;
  std::vector<OneRank> ranks_;
};

/// NCCL between the ranks, for the baselines that share it. Errors: unavailable, with the reason.
Result<std::shared_ptr<Nccl>> open_nccl_for(Cluster& cluster,
                                            std::span<const std::unique_ptr<RankCase>> cases) {
  if (cluster.rank(0).context.nodes() > 1)
    return Status(Code::kUnavailable, "there is more than one node");
  if (cluster.size() == 1) return Status(Code::kUnavailable, "one rank has nothing to gather");
  std::vector<const void*> memory;
  for (const std::unique_ptr<RankCase>& one : cases) {
    auto* operands = static_cast<AllGatherGemmCase*>(one.get());
    if (operands->arguments().m % cluster.size() != 0)
      return Status(Code::kUnavailable, "the ranks have different numbers of rows");
    memory.push_back(operands->gathered().data);
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

Result<Baselines> ag_gemm_baselines(Cluster& cluster,
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
    if (kind.gathers && !nccl) nccl.emplace(open_nccl_for(cluster, cases));
    Status status = kind.gathers ? nccl->status() : Status::ok();
    if (status) {
      const auto work = std::make_shared<InTurn>(
          kind, cluster, cases, kind.gathers ? nccl->value() : std::shared_ptr<Nccl>());
      status = work->prepare();
      if (status) found.list.push_back(to_baseline(kind.name, work));
    }
    if (status.code() == Code::kUnavailable)
      found.left_out.push_back({kind.name, status.message()});
    else
      MK_RETURN_IF_ERROR(status);
  }
  return found;
}

}  // namespace mkernel::app
