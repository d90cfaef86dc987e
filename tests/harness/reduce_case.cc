#include "tests/harness/reduce_case.h"

#include <cmath>
#include <cstring>
#include <memory>
#include <thread>

#include "core/float16.h"
#include "tests/harness/operands.h"

namespace mkernel::harness {
namespace {

using Floats = std::vector<float>;

/// The matrices of one launch of one rank, in the rank's buffers.
struct Operands {
  GemmReduceOperands views;
  Bits a, b, bias, residual;
};

struct RankState {
  Context* context;
  Stream stream;
  std::unique_ptr<GemmReduce> plan;
  std::vector<Buffer> buffers;
  std::vector<Operands> launches;
};

class Run {
 public:
  explicit Run(const ReduceCase& c) : case_(c), s_(c.shape), random_(c.seed) {}

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
      MK_RETURN_IF_ERROR(verify(static_cast<size_t>(i)));
    return status;
  }

 private:
  bool kn() const { return s_.b_layout == BLayout::kKN; }
  int64_t b_rows() const { return kn() ? s_.k : s_.n; }
  int64_t b_cols() const { return kn() ? s_.n : s_.k; }
  size_t c_bytes() const { return s_.output == Output::kFp32 ? 4 : 2; }
  RowRange rows_of(int rank) const {
    return rows_of_rank(s_.m, case_.cluster.nodes * case_.cluster.gpus, rank);
  }
  RowRange rows_c(const RankState& r) const {
    return case_.gathers ? RowRange{0, s_.m} : rows_of(r.context->rank());
  }

  Status add_rank(Context& context) {
    auto stream = context.create_stream();
    if (!stream) return stream.status();
    ranks_.push_back({&context, std::move(stream.value()), nullptr, {}, {}});
    RankState& r = ranks_.back();
    MK_RETURN_IF_ERROR(create_plan(r));
    for (int i = 0; i < case_.iterations; ++i) MK_RETURN_IF_ERROR(add_launch(r));
    return Status::ok();
  }

  Status create_plan(RankState& r) {
    const auto keep = [&](auto plan) {
      using Plan = std::remove_reference_t<decltype(*plan)>;
      if (plan) r.plan = std::make_unique<Plan>(std::move(plan.value()));
      return plan.status();
    };
    return case_.gathers ? keep(GemmAllReduce::create(*r.context, s_, case_.tuning))
                         : keep(GemmReduceScatter::create(*r.context, s_, case_.tuning));
  }

  /// A buffer that holds `bits`, at an odd place of it.
  Result<Matrix> upload(RankState& r, const Bits& bits, int64_t rows, int64_t cols, int64_t ld) {
    auto buffer = r.context->allocate(bytes_of(bits));
    if (!buffer) return buffer.status();
    MK_RETURN_IF_ERROR(r.context->upload(buffer->data(), bits.data(), bytes_of(bits)));
    r.buffers.push_back(std::move(*buffer));
    return Matrix{r.buffers.back().data(), rows, cols, ld};
  }

  Bits random_operand(int64_t rows, int64_t cols, int64_t ld) {
    Bits bits = random_matrix(random_, rows, cols, ld, s_.dtype);
    if (!case_.rounds) return bits;
    for (size_t i = 0; i < bits.size(); i += 2)
      if (bits[i] != kCanary)
        bits[i] = from_float(to_float(bits[i], s_.dtype) * 0x1.58p-7f, s_.dtype);
    return bits;
  }

  Status add_launch(RankState& r) {
    Operands o;
    const int64_t lda = s_.k + case_.pad_a, ldb = b_cols() + case_.pad_b;
    const int64_t ldc = s_.n + case_.pad_c, ld_residual = s_.n + case_.pad_residual;
    o.a = random_operand(s_.m, s_.k, lda);
    o.b = random_operand(b_rows(), b_cols(), ldb);
    o.bias = random_bias_;
    if (o.bias.empty()) o.bias = random_bias_ = random_matrix(random_, 1, s_.n, s_.n, s_.dtype);
    const int64_t own = rows_of(r.context->rank()).count;
    o.residual = random_matrix(random_, own, s_.n, ld_residual, s_.dtype);
    const int64_t rows = rows_c(r).count;
    const Bits c(static_cast<size_t>(rows * ldc) * c_bytes() / 2, kCanary);
    const auto put = [&](Matrix& view, const Bits& bits, int64_t m, int64_t n, int64_t ld) {
      const Result<Matrix> there = upload(r, bits, m, n, ld);
      if (there) view = there.value();
      return there.status();
    };
    MK_RETURN_IF_ERROR(put(o.views.a, o.a, s_.m, s_.k, lda));
    MK_RETURN_IF_ERROR(put(o.views.b, o.b, b_rows(), b_cols(), ldb));
    MK_RETURN_IF_ERROR(put(o.views.c, c, rows, s_.n, ldc));
    if (s_.bias) MK_RETURN_IF_ERROR(put(o.views.bias, o.bias, 1, s_.n, s_.n));
    if (s_.residual) MK_RETURN_IF_ERROR(put(o.views.residual, o.residual, own, s_.n, ld_residual));
    r.launches.push_back(std::move(o));
    return Status::ok();
  }

  Status launch_all() {
    const auto launch = [&](RankState& r, size_t i) {
      return r.plan->run(r.stream.handle(), r.launches[i].views);
    };
    const auto count = static_cast<size_t>(case_.iterations);
    if (case_.order == GatherCase::Order::kByLaunch) {
      for (size_t i = 0; i < count; ++i)
        for (RankState& r : ranks_) MK_RETURN_IF_ERROR(launch(r, i));
      return Status::ok();
    }
    for (RankState& r : ranks_) {
      for (size_t i = 0; i < count; ++i) MK_RETURN_IF_ERROR(launch(r, i));
      std::this_thread::sleep_for(case_.pause);
    }
    return Status::ok();
  }

  float value(const Bits& bits, int64_t at) const {
    return to_float(bits[static_cast<size_t>(at)], s_.dtype);
  }

  /// A rank's product, summed in fp32 from k = 0 up.
  Floats product(const Operands& o) const {
    const auto n = static_cast<size_t>(s_.n);
    Floats sums(static_cast<size_t>(s_.m) * n, 0.0f);
    for (int64_t i = 0; i < s_.m; ++i)
      for (int64_t d = 0; d < s_.k; ++d) {
        const float x = value(o.a, i * o.views.a.ld + d);
        for (int64_t j = 0; j < s_.n; ++j) {
          const int64_t at = kn() ? d * o.views.b.ld + j : j * o.views.b.ld + d;
          sums[static_cast<size_t>(i) * n + static_cast<size_t>(j)] += x * value(o.b, at);
        }
      }
    return sums;
  }

  float rounded(float x) const {
    return s_.partials == Partials::kFp32 ? x : to_float(from_float(x, s_.dtype), s_.dtype);
  }

  /// All ranks' products added as promised: the ranks of a node, then the nodes.
  Floats sum_of_all(size_t launch) const {
    const int nodes = case_.cluster.nodes, gpus = case_.cluster.gpus;
    Floats all;
    for (int node = 0; node < nodes; ++node) {
      Floats sum;
      for (int gpu = 0; gpu < gpus; ++gpu)
        add(sum, product(ranks_[static_cast<size_t>(node * gpus + gpu)].launches[launch]), gpus);
      add(all, sum, nodes);
    }
    return all;
  }
  /// Adds one of `terms` terms, which is rounded if it is not the only one.
  void add(Floats& sum, Floats term, int terms) const {
    if (terms > 1)
      for (float& x : term) x = rounded(x);
    if (sum.empty())
      sum = std::move(term);
    else
      for (size_t i = 0; i < sum.size(); ++i) sum[i] += term[i];
  }

  float finished(float sum, const Operands& owner, int64_t row_of_owner, int64_t col) const {
    float x = s_.alpha * sum;
    if (s_.bias) x += value(owner.bias, col);
    if (s_.residual) x += value(owner.residual, row_of_owner * owner.views.residual.ld + col);
    switch (s_.activation) {
      case Activation::kNone: break;
      case Activation::kRelu: return std::max(x, 0.0f);
      case Activation::kGelu: return 0.5f * x * (1 + std::erf(x * 0.70710678f));
      case Activation::kSilu: return x / (1 + std::exp(-x));
    }
    return x;
  }

  /// Bits of an output element, or of the padding.
  uint32_t output_bits(const char* at) const {
    uint32_t word = 0;
    std::memcpy(&word, at, c_bytes());
    return word;
  }
  float output_value(uint32_t bits) const {
    return s_.output == Output::kFp32 ? std::bit_cast<float>(bits)
                                      : to_float(static_cast<uint16_t>(bits), s_.dtype);
  }
  uint32_t canary_bits() const {
    return s_.output == Output::kFp32 ? uint32_t{kCanary} << 16 | kCanary : kCanary;
  }
  bool matches(uint32_t have, float want) const {
    const uint32_t bits =
        s_.output == Output::kFp32 ? std::bit_cast<uint32_t>(want) : from_float(want, s_.dtype);
    if (have == bits || output_value(have) == output_value(bits)) return true;
    // What is not arithmetic may differ between machines, by a little.
    if (s_.activation != Activation::kGelu && s_.activation != Activation::kSilu) return false;
    // GELU in its tail is x times what cancellation left of 1 + erf(x): off by x roundings of 1.
    const float slack = s_.output == Output::kFp32 ? 1e-5f : 0x1p-7f;
    return std::fabs(output_value(have) - want) <= slack * std::fabs(want) + 2e-6f;
  }

  Status verify(size_t launch) {
    const Floats sums = sum_of_all(launch);
    for (RankState& r : ranks_) MK_RETURN_IF_ERROR(verify_rank(r, launch, sums));
    return Status::ok();
  }

  Status verify_rank(RankState& r, size_t launch, const Floats& sums) {
    const Matrix& c = r.launches[launch].views.c;
    std::vector<char> got(static_cast<size_t>(c.rows * c.ld) * c_bytes());
    MK_RETURN_IF_ERROR(r.context->download(got.data(), c.data, got.size()));
    for (int64_t i = 0; i < c.rows; ++i)
      for (int64_t j = 0; j < c.ld; ++j) {
        const uint32_t have = output_bits(&got[static_cast<size_t>(i * c.ld + j) * c_bytes()]);
        const int64_t row = rows_c(r).begin + i;
        const bool padding = j >= s_.n;
        const float want = padding ? 0 : expected(sums, launch, row, j);
        if (padding ? have == canary_bits() : matches(have, want)) continue;
        ADD_FAILURE() << "rank " << r.context->rank() << " launch " << launch << " C(" << i << ", "
                      << j << ") is " << output_value(have) << ", expected " << want << "\n"
                      << case_;
        return Status::ok();
      }
    return Status::ok();
  }

  float expected(const Floats& sums, size_t launch, int64_t row, int64_t col) const {
    int owner = 0;
    while (row >= rows_of(owner).begin + rows_of(owner).count) ++owner;
    const Operands& o = ranks_[static_cast<size_t>(owner)].launches[launch];
    return finished(sums[static_cast<size_t>(row * s_.n + col)], o, row - rows_of(owner).begin,
                    col);
  }

  const ReduceCase& case_;
  const GemmReduceShape& s_;
  std::mt19937 random_;
  Bits random_bias_;  // the same on all ranks and in all launches
  std::vector<Context> contexts_;
  std::vector<RankState> ranks_;
};

}  // namespace

std::ostream& operator<<(std::ostream& out, const ReduceCase& c) {
  const LoopbackOptions& link = c.cluster.loopback;
  return out << "case: " << (c.gathers ? "gemm-ar " : "gemm-rs ") << c.cluster.nodes << "x"
             << c.cluster.gpus << " m " << c.shape.m << " n " << c.shape.n << " k " << c.shape.k
             << (c.shape.dtype == DType::kBf16 ? " bf16" : " fp16")
             << (c.shape.b_layout == BLayout::kKN ? " kn" : " nk")
             << (c.shape.partials == Partials::kFp32 ? " fp32 partials" : "") << " alpha "
             << c.shape.alpha << " bias " << c.shape.bias << " residual " << c.shape.residual
             << " activation " << static_cast<int>(c.shape.activation) << " output "
             << static_cast<int>(c.shape.output) << " pads " << c.pad_a << "," << c.pad_b << ","
             << c.pad_c << "," << c.pad_residual << " blocks " << c.tuning.blocks << " workspace "
             << c.tuning.workspace_bytes << " round " << c.tuning.round_tiles << " first epoch "
             << c.cluster.first_epoch << " link "
             << (link.order == LinkOrder::kInOrder ? "in-order" : "reordered") << " "
             << link.link_gbs << " GB/s " << link.link_us << " us late " << link.late_us
             << " us seed " << link.seed << " stalled " << link.stalled_ranks.size() << " for "
             << link.stall_us << " us, rounds " << c.rounds << ", seed " << c.seed;
}

ReduceCase random_reduce_case(std::mt19937& random, bool gathers, const CaseLimits& limits) {
  ReduceCase c;
  c.cluster = random_cluster(random);
  c.gathers = gathers;
  const int world = c.cluster.nodes * c.cluster.gpus;
  c.shape.m = pick(random, 0, 3) == 0 ? pick(random, 0, world)
                                      : pick(random, 0, limits.rows_per_rank * world);
  c.shape.n = pick(random, 1, limits.cols);
  c.shape.k = pick(random, 0, 4) == 0 ? 1 : pick(random, 1, limits.depth);
  c.shape.dtype = pick(random, 0, 1) ? DType::kBf16 : DType::kFp16;
  c.shape.b_layout = pick(random, 0, 1) ? BLayout::kKN : BLayout::kNK;
  c.shape.partials = pick(random, 0, 1) ? Partials::kFp32 : Partials::k16Bit;
  c.tuning.blocks = pick(random, 1, limits.blocks);
  // Rounds of a few tiles use their slots many times in a launch.
  c.tuning.round_tiles = pick(random, 0, 1) ? 0 : pick(random, 1, 6);
  if (c.tuning.round_tiles == 0 && pick(random, 0, 1))
    c.tuning.workspace_bytes = static_cast<uint64_t>(pick(random, 1, 4)) * limits.tile_workspace;
  c.pad_a = pick(random, 0, 9);
  c.pad_b = pick(random, 0, 9);
  c.pad_c = pick(random, 0, 9);
  c.pad_residual = pick(random, 0, 9);
  c.iterations = pick(random, 1, 4);
  c.seed = random();
  return c;
}

Status run_case(const ReduceCase& c) { return Run(c)(); }

}  // namespace mkernel::harness
