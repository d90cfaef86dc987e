#include <algorithm>
#include <sstream>

#include <mkernel/operators.h>

#include "operators/checks.h"

namespace mkernel {

using detail::refuse;

namespace {

constexpr uint64_t kDefaultWorkspaceBytes = uint64_t{256} << 20;
/// Rounds whose tiles have slots of their own. More would let a rank be further ahead of its peers.
constexpr uint32_t kMostDepth = 4;
/// Values of one flag are at most two launches apart, and an immediate can tell 2^15.
constexpr uint32_t kMostEpochs = 1u << 14;

std::string signature_of(const GemmReduceShape& s, bool gathers, const ReduceTileOrder& tiles) {
  std::ostringstream out;
  out << (gathers ? "gemm-ar" : "gemm-rs") << " m " << s.m << " n " << s.n
      << (s.dtype == DType::kBf16 ? " bf16" : " fp16")
      << (s.partials == Partials::kFp32 ? " fp32" : " 16bit") << " partials, alpha " << s.alpha
      << (s.bias ? " bias" : "") << (s.residual ? " residual" : "") << " activation "
      << static_cast<int>(s.activation) << " output " << static_cast<int>(s.output) << " rounds of "
      << tiles.round_tiles << " tiles, depth " << tiles.depth;
  return out.str();
}

Status check_tuning(const GemmReduceTuning& t, const MachineShape& machine) {
  MK_RETURN_IF_ERROR(detail::check_blocks(t.blocks, machine));
  if (t.round_tiles < 0 || t.round_tiles > kMaxExtent)
    return refuse("round_tiles", t.round_tiles,
                  "0 (plan chooses) to " + std::to_string(kMaxExtent));
  return Status::ok();
}

}  // namespace

class GemmReduce::Impl {
 public:
  Impl(std::shared_ptr<detail::Rank> rank, const GemmReduceShape& shape, bool gathers)
      : rank_(std::move(rank)), shape_(shape) {
    work_.layout.gathers = gathers;
  }

  Status init(const GemmReduceTuning& tuning) {
    const MachineShape machine = rank_->machine().shape();
    MK_RETURN_IF_ERROR(detail::check_extents(shape_.m, shape_.n, shape_.k));
    MK_RETURN_IF_ERROR(check_tuning(tuning, machine));
    describe_work(machine);
    work_.num_blocks = tuning.blocks != 0 ? static_cast<uint32_t>(tuning.blocks) : machine.blocks;
    MK_RETURN_IF_ERROR(choose_rounds(tuning));
    MK_RETURN_IF_ERROR(check_sizes());
    return claim_work_space();
  }

  Status run(StreamHandle stream, const GemmReduceOperands& o) {
    MK_RETURN_IF_ERROR(rank_->cluster().status());
    GemmReduceWork op = work_;
    const int64_t rows_c = op.layout.gathers ? shape_.m : own_rows();
    MK_RETURN_IF_ERROR(detail::take_operands(
        op, {shape_.m, shape_.n, shape_.k, rows_c, op.sums.result_element()}, o.a, o.b, o.c));
    op.sums.c_pitch = op.c_pitch;
    if (shape_.bias) {
      MK_RETURN_IF_ERROR(detail::check_view("bias", o.bias, 1, shape_.n));
      op.bias = static_cast<const char*>(o.bias.data);
    }
    if (shape_.residual) {
      MK_RETURN_IF_ERROR(detail::check_view("residual", o.residual, own_rows(), shape_.n));
      op.residual = static_cast<const char*>(o.residual.data);
      op.sums.residual_pitch = detail::pitch_of(o.residual);
    }
    rank_->wake_network();
    return rank_->machine().launch(op, stream);
  }

  std::string describe() const {
    const ReduceTileOrder& t = work_.tiles;
    std::ostringstream out;
    out << work_.num_blocks << " blocks, tiles " << t.tile_m << "x" << t.tile_n << " in bands of "
        << t.band << ", " << t.num_rounds << " rounds of " << t.round_tiles
        << " tiles per rank, slots for " << t.depth << " of them, partial sums in "
        << (shape_.partials == Partials::kFp32 ? "fp32" : "16 bits") << ", work space "
        << workspace_bytes() << " bytes";
    return out.str();
  }

  uint64_t workspace_bytes() const { return work_.layout.bytes(); }

 private:
  int64_t own_rows() const { return work_.tiles.split.count(rank_->rank()); }

  void describe_work(const MachineShape& machine) {
    const ClusterShape cluster = rank_->cluster().shape();
    const FastRowSplit split(RowSplit{static_cast<uint64_t>(shape_.m), cluster.world()});
    detail::place(work_, *rank_);
    work_.k = static_cast<uint32_t>(shape_.k);
    work_.dtype = shape_.dtype;
    work_.b_layout = shape_.b_layout;
    work_.pad_rows = machine.pad_rows;
    work_.pad_cols = machine.pad_cols;
    // Ranks share slots tile by tile, so all must have tiles of one width: the widest.
    const uint32_t tile_n = machine.tile_widths[0].cols;
    work_.tiles = {cluster,        split,  rank_->rank(), static_cast<uint32_t>(shape_.n),
                   machine.tile_m, tile_n, machine.band};
    work_.tiles.derive();
    TileSums& sums = work_.sums;
    sums.gpus = cluster.gpus;
    sums.gpu = work_.gpu;
    sums.nodes = cluster.nodes;
    sums.node = work_.node;
    sums.partials = shape_.partials;
    sums.dtype = shape_.dtype;
    sums.alpha = shape_.alpha;
    sums.activation = shape_.activation;
    sums.output = shape_.output;
    work_.layout.cluster = cluster;
    // The largest tile that there is, so that a plan of few rows does not take much.
    const ReduceTile largest = work_.tiles.tile_of(0, 0, 0);
    work_.layout.partial_bytes = round_up<uint64_t>(work_.partial_tile_bytes(largest), 256);
    work_.layout.result_bytes = round_up<uint64_t>(work_.result_tile_bytes(largest), 256);
  }

  /// The layout with `slots` of them in all.
  ReduceLayout layout_of(uint32_t slots, uint32_t depth) const {
    ReduceLayout layout = work_.layout;
    layout.slots = slots;
    layout.depth = depth;
    layout.derive();
    return layout;
  }

  /// Slots per slice that the work space may have.
  uint64_t most_slots(uint64_t most_bytes) const {
    const uint64_t bytes = layout_of(1, 1).bytes();
    const uint32_t flags = layout_of(2, 1).num_flags() - layout_of(1, 1).num_flags();
    const uint64_t by_bytes = bytes == 0 ? UINT32_MAX : most_bytes / bytes;
    // One plan should not take more than a part of the flags that all plans share.
    const uint64_t by_flags = flags == 0 ? UINT32_MAX : kMaxFlags / 8 / flags;
    return std::min(by_bytes, std::max<uint64_t>(by_flags, 1));
  }

  Status choose_rounds(const GemmReduceTuning& tuning) {
    const ReduceTileOrder& t = work_.tiles;
    const uint64_t tiles = uint64_t{t.row_tiles(0)} * t.col_tiles;
    if (tiles > INT32_MAX) return refuse_tiles(tiles);
    if (tiles == 0) return Status::ok();
    const uint64_t most_bytes =
        tuning.workspace_bytes != 0 ? tuning.workspace_bytes : kDefaultWorkspaceBytes;
    const uint64_t most = most_slots(most_bytes);
    uint64_t round = std::min(tiles, wanted_round(tuning, tiles));
    if (tuning.round_tiles == 0 && round > most) round = std::max<uint64_t>(most / 2, 1);
    if (round > most)
      return Status(Code::kInvalidArgument,
                    "workspace_bytes = " + std::to_string(most_bytes) + ": rounds of " +
                        std::to_string(round) + " tiles need " +
                        std::to_string(layout_of(static_cast<uint32_t>(round), 1).bytes()));
    work_.tiles.round_tiles = static_cast<uint32_t>(round);
    work_.tiles.depth = static_cast<uint32_t>(
        std::min({uint64_t{t.rounds_of(0)}, most / round, uint64_t{kMostDepth}}));
    work_.tiles.derive();
    return Status::ok();
  }

  /// All tiles in one round, so that no own tile is computed before all that others wait for. Where
  /// finished tiles travel on, four rounds, to spread that over the launch; but not so short ones
  /// that blocks wait for each other.
  uint64_t wanted_round(const GemmReduceTuning& tuning, uint64_t tiles) const {
    if (tuning.round_tiles != 0) return static_cast<uint64_t>(tuning.round_tiles);
    if (!work_.spreads()) return tiles;
    const uint64_t two_waves = ceil_div<uint64_t>(2 * work_.num_blocks, work_.cluster.world());
    return std::max(ceil_div<uint64_t>(tiles, 4), two_waves);
  }

  static Status refuse_tiles(uint64_t tiles) {
    return refuse("output tiles", static_cast<int64_t>(tiles), "must stay below 2^32");
  }

  Status check_sizes() const {
    const ReduceTileOrder& t = work_.tiles;
    const uint64_t tickets = uint64_t{t.num_rounds} * t.cluster.world() * t.round_tiles;
    // Every block draws one ticket beyond the end.
    if (tickets > UINT32_MAX - work_.num_blocks) return refuse_tiles(tickets);
    if (t.cluster.nodes > 1 && t.epochs > kMostEpochs)
      return refuse("rounds", t.epochs,
                    "at most " + std::to_string(kMostEpochs) + ": choose larger workspace_bytes");
    return Status::ok();
  }

  Status claim_work_space() {
    const ReduceTileOrder& t = work_.tiles;
    work_.layout = layout_of(t.num_slots(), t.depth);
    work_.sums.partial_stride = work_.layout.partial_stride;
    work_.sums.sum_stride = work_.layout.sum_stride;
    const uint32_t flags = work_.layout.num_flags();
    if (flags > kMaxFlags) return refuse("flags", flags, "at most " + std::to_string(kMaxFlags));
    auto space = rank_->cluster().join_plan(
        rank_->rank(), signature_of(shape_, work_.layout.gathers, t), work_.layout.bytes(), flags);
    if (!space) return space.status();
    space_ = std::move(space.value());
    detail::attach(work_, *rank_, *space_);
    work_.layout.first = space_->of(rank_->rank()).flags->first;
    work_.layout.derive();
    work_.first_epoch = space_->first_epoch;
    return Status::ok();
  }

  std::shared_ptr<detail::Rank> rank_;  // outlives the work space
  GemmReduceShape shape_;
  std::shared_ptr<detail::PlanSpace> space_;
  GemmReduceWork work_;  // all but the operands
};

GemmReduce::GemmReduce(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
GemmReduce::GemmReduce(GemmReduce&&) noexcept = default;
GemmReduce& GemmReduce::operator=(GemmReduce&&) noexcept = default;
GemmReduce::~GemmReduce() = default;

Status GemmReduce::run(StreamHandle stream, const GemmReduceOperands& operands) {
  return impl_->run(stream, operands);
}
std::string GemmReduce::describe() const { return impl_->describe(); }
uint64_t GemmReduce::workspace_bytes() const { return impl_->workspace_bytes(); }

Result<GemmReduceScatter> GemmReduceScatter::create(const Context& context,
                                                    const GemmReduceShape& shape,
                                                    const GemmReduceTuning& tuning) {
  auto impl = std::make_unique<Impl>(context.impl(), shape, false);
  MK_RETURN_IF_ERROR(impl->init(tuning));
  return GemmReduceScatter(std::move(impl));
}

Result<GemmAllReduce> GemmAllReduce::create(const Context& context, const GemmReduceShape& shape,
                                            const GemmReduceTuning& tuning) {
  auto impl = std::make_unique<Impl>(context.impl(), shape, true);
  MK_RETURN_IF_ERROR(impl->init(tuning));
  return GemmAllReduce(std::move(impl));
}

}  // namespace mkernel
