#include "tests/harness/gather_case.h"

#include <thread>

#include "core/float16.h"

namespace mkernel::harness {
namespace {

/// The matrices of one launch of one rank, in the rank's buffers.
struct Operands {
  char* a;
  char* b;
  char* c;
  Bits host_a, host_b;
};

struct RankState {
  Context* context;
  Stream stream;
  AllGatherGemm plan;
  std::vector<Buffer> buffers;
  std::vector<Operands> launches;
};

class Run {
 public:
  explicit Run(const GatherCase& c) : case_(c), random_(c.seed) {}

  Status operator()() {
    auto contexts = Context::create_virtual(case_.cluster);
    if (!contexts) return contexts.status();
    contexts_ = std::move(contexts.value());
    for (Context& context : contexts_) MK_RETURN_IF_ERROR(add_rank(context));
    if (case_.before_launches) case_.before_launches();
    Status status = launch_all();
    // After a fault, other ranks' launches are still on their way out.
    for (RankState& r : ranks_)
      if (const Status end = r.context->synchronize(r.stream.handle()); status) status = end;
    if (case_.after_launches) case_.after_launches();
    for (int i = 0; i < case_.iterations && status && !::testing::Test::HasFailure(); ++i)
      for (RankState& r : ranks_) MK_RETURN_IF_ERROR(verify(r, i));
    return status;
  }

 private:
  int64_t lda() const { return case_.shape.k + case_.pad_a; }
  bool kn() const { return case_.shape.b_layout == BLayout::kKN; }
  int64_t b_rows() const { return kn() ? case_.shape.k : case_.shape.n; }
  int64_t b_cols() const { return kn() ? case_.shape.n : case_.shape.k; }
  int64_t ldb() const { return b_cols() + case_.pad_b; }
  int64_t ldc() const { return case_.shape.n + case_.pad_c; }
  RowRange rows(const RankState& r) const {
    return rows_of_rank(case_.shape.m, r.context->world_size(), r.context->rank());
  }

  Status add_rank(Context& context) {
    auto plan = AllGatherGemm::create(context, case_.shape, case_.tuning);
    if (!plan) return plan.status();
    auto stream = context.create_stream();
    if (!stream) return stream.status();
    ranks_.push_back({&context, std::move(stream.value()), std::move(plan.value()), {}, {}});
    return add_operands(ranks_.back());
  }

  /// Fresh matrices for every launch, laid one after the other in a buffer of each kind.
  Status add_operands(RankState& r) {
    const DType dtype = case_.shape.dtype;
    const int64_t sizes[] = {rows(r).count * lda(), b_rows() * ldb(), case_.shape.m * ldc()};
    for (const int64_t elements : sizes) {
      auto buffer = r.context->allocate(stride(elements) * static_cast<uint64_t>(case_.iterations));
      if (!buffer) return buffer.status();
      r.buffers.push_back(std::move(*buffer));
    }
    const Bits c(static_cast<size_t>(sizes[2]), kCanary);
    for (int i = 0; i < case_.iterations; ++i) {
      char* at[3];
      for (size_t kind = 0; kind < 3; ++kind)
        at[kind] = static_cast<char*>(r.buffers[kind].data()) +
                   stride(sizes[kind]) * static_cast<uint64_t>(i);
      Bits a = random_matrix(random_, rows(r).count, case_.shape.k, lda(), dtype);
      Bits b = random_matrix(random_, b_rows(), b_cols(), ldb(), dtype);
      MK_RETURN_IF_ERROR(r.context->upload(at[0], a.data(), bytes_of(a)));
      MK_RETURN_IF_ERROR(r.context->upload(at[1], b.data(), bytes_of(b)));
      MK_RETURN_IF_ERROR(r.context->upload(at[2], c.data(), bytes_of(c)));
      r.launches.push_back({at[0], at[1], at[2], std::move(a), std::move(b)});
    }
    return Status::ok();
  }

  static uint64_t stride(int64_t elements) {
    return aligned_bytes(static_cast<uint64_t>(elements) * kElementBytes);
  }

  Status launch(RankState& r, const Operands& o) {
    return r.plan.run(r.stream.handle(), {o.a, rows(r).count, case_.shape.k, lda()},
                      {o.b, b_rows(), b_cols(), ldb()}, {o.c, case_.shape.m, case_.shape.n, ldc()});
  }

  Status launch_all() {
    if (case_.order == GatherCase::Order::kByLaunch) {
      for (size_t i = 0; i < static_cast<size_t>(case_.iterations); ++i)
        for (RankState& r : ranks_) MK_RETURN_IF_ERROR(launch(r, r.launches[i]));
      return Status::ok();
    }
    for (RankState& r : ranks_) {
      for (const Operands& o : r.launches) MK_RETURN_IF_ERROR(launch(r, o));
      std::this_thread::sleep_for(case_.pause);
    }
    return Status::ok();
  }

  /// The rows of A over all ranks as floats.
  std::vector<float> all_rows(int launch) const {
    std::vector<float> all;
    for (const RankState& r : ranks_) {
      const Bits& a = r.launches[static_cast<size_t>(launch)].host_a;
      for (int64_t i = 0; i < rows(r).count; ++i)
        for (int64_t j = 0; j < case_.shape.k; ++j)
          all.push_back(to_float(a[static_cast<size_t>(i * lda() + j)], case_.shape.dtype));
    }
    return all;
  }

  /// B as [k, n] floats.
  std::vector<float> weights(const Bits& b) const {
    std::vector<float> w(static_cast<size_t>(case_.shape.k * case_.shape.n));
    for (int64_t d = 0; d < case_.shape.k; ++d)
      for (int64_t j = 0; j < case_.shape.n; ++j) {
        const int64_t at = kn() ? d * ldb() + j : j * ldb() + d;
        w[static_cast<size_t>(d * case_.shape.n + j)] =
            to_float(b[static_cast<size_t>(at)], case_.shape.dtype);
      }
    return w;
  }

  /// Row i of the product; exact, because the sums are integers far below 2^24.
  std::vector<float> product_row(const std::vector<float>& a, const std::vector<float>& w,
                                 int64_t i) const {
    const auto n = static_cast<size_t>(case_.shape.n), k = static_cast<size_t>(case_.shape.k);
    std::vector<float> row(n, 0.0f);
    for (size_t d = 0; d < k; ++d) {
      const float x = a[static_cast<size_t>(i) * k + d];
      for (size_t j = 0; j < n; ++j) row[j] += x * w[d * n + j];
    }
    return row;
  }

  Status verify(RankState& r, int launch) {
    const Operands& o = r.launches[static_cast<size_t>(launch)];
    Bits got(static_cast<size_t>(case_.shape.m * ldc()));
    MK_RETURN_IF_ERROR(r.context->download(got.data(), o.c, bytes_of(got)));
    const std::vector<float> a = all_rows(launch), w = weights(o.host_b);
    for (int64_t i = 0; i < case_.shape.m; ++i) {
      const std::vector<float> row = product_row(a, w, i);
      for (int64_t j = 0; j < ldc(); ++j) {
        const uint16_t have = got[static_cast<size_t>(i * ldc() + j)];
        const uint16_t want = j < case_.shape.n
                                  ? from_float(row[static_cast<size_t>(j)], case_.shape.dtype)
                                  : kCanary;
        if (have == want) continue;
        ADD_FAILURE() << "rank " << r.context->rank() << " launch " << launch << " C(" << i << ", "
                      << j << ") is " << to_float(have, case_.shape.dtype) << ", expected "
                      << to_float(want, case_.shape.dtype) << "\n"
                      << case_;
        return Status::ok();
      }
    }
    const bool is_last = launch == case_.iterations - 1;
    return case_.shape.gather_a && is_last ? verify_gathered(r, a) : Status::ok();
  }

  Status verify_gathered(RankState& r, const std::vector<float>& a) {
    const auto view = r.plan.gathered_a();
    if (!view) return view.status();
    const auto& m = view.value();
    Bits got(static_cast<size_t>(m.rows * m.ld));
    MK_RETURN_IF_ERROR(r.context->download(got.data(), m.data, bytes_of(got)));
    for (int64_t i = 0; i < m.rows; ++i)
      for (int64_t j = 0; j < m.cols; ++j)
        if (to_float(got[static_cast<size_t>(i * m.ld + j)], case_.shape.dtype) !=
            a[static_cast<size_t>(i * m.cols + j)]) {
          ADD_FAILURE() << "rank " << r.context->rank() << " gathered A(" << i << ", " << j
                        << ") is wrong\n"
                        << case_;
          return Status::ok();
        }
    return Status::ok();
  }

  const GatherCase& case_;
  std::mt19937 random_;
  std::vector<Context> contexts_;
  std::vector<RankState> ranks_;
};

}  // namespace

std::ostream& operator<<(std::ostream& out, const GatherCase& c) {
  const LoopbackOptions& link = c.cluster.loopback;
  return out << "case: " << c.cluster.nodes << "x" << c.cluster.gpus << " m " << c.shape.m << " n "
             << c.shape.n << " k " << c.shape.k
             << (c.shape.dtype == DType::kBf16 ? " bf16" : " fp16")
             << (c.shape.b_layout == BLayout::kKN ? " kn" : " nk") << " pads " << c.pad_a << ","
             << c.pad_b << "," << c.pad_c << " blocks " << c.tuning.blocks << "/"
             << c.tuning.comm_blocks << " chunk_rows " << c.tuning.chunk_rows << " tile_n "
             << c.tuning.tile_n << " push " << static_cast<int>(c.tuning.push) << " first epoch "
             << c.cluster.first_epoch << " link "
             << (link.order == LinkOrder::kInOrder ? "in-order" : "reordered") << " "
             << link.link_gbs << " GB/s " << link.link_us << " us late " << link.late_us
             << " us seed " << link.seed << " stalled " << link.stalled_ranks.size() << " for "
             << link.stall_us << " us, gather_a " << c.shape.gather_a << ", seed " << c.seed;
}

GatherCase random_case(std::mt19937& random, const CaseLimits& limits) {
  GatherCase c;
  c.cluster = random_cluster(random);
  const int world = c.cluster.nodes * c.cluster.gpus;
  c.shape.m = pick(random, 0, 3) == 0 ? pick(random, 0, world)
                                      : pick(random, 0, limits.rows_per_rank * world);
  c.shape.n = pick(random, 1, limits.cols);
  c.shape.k = pick(random, 0, 4) == 0 ? 1 : pick(random, 1, limits.depth);
  c.shape.dtype = pick(random, 0, 1) ? DType::kBf16 : DType::kFp16;
  c.shape.b_layout = pick(random, 0, 1) ? BLayout::kKN : BLayout::kNK;
  c.shape.gather_a = pick(random, 0, 3) == 0;
  c.tuning.blocks = pick(random, 1, limits.blocks);
  c.tuning.comm_blocks = pick(random, world > 1 ? 1 : 0, c.tuning.blocks);
  c.tuning.chunk_rows = pick(random, 0, 1) ? 0 : pick(random, 1, limits.rows_per_rank);
  c.tuning.tile_n = pick(random, 0, 2) == 0 ? 0 : limits.tile_widths[pick(random, 0, 1)];
  const bool can_use_engines = c.cluster.nodes == 1 && !c.shape.gather_a && limits.copy_engines;
  c.tuning.push = can_use_engines && pick(random, 0, 1) ? Push::kEngine : Push::kAuto;
  c.pad_a = pick(random, 0, 9);
  c.pad_b = pick(random, 0, 9);
  c.pad_c = pick(random, 0, 9);
  c.iterations = pick(random, 1, 5);
  c.seed = random();
  return c;
}

Status run_case(const GatherCase& c) { return Run(c)(); }

}  // namespace mkernel::harness
