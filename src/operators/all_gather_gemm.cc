#include <algorithm>
#include <sstream>

#include <mkernel/operators.h>

#include "operators/checks.h"

namespace mkernel {

using detail::refuse;

namespace {

std::string signature_of(const AllGatherGemmShape& s, const AllGatherGemmTuning& t) {
  std::ostringstream out;
  out << "ag-gemm m " << s.m << " k " << s.k << (s.dtype == DType::kBf16 ? " bf16" : " fp16")
      << (s.gather_a ? " gather_a" : "") << " chunk_rows " << t.chunk_rows << " push "
      << static_cast<int>(t.push);
  return out.str();
}

Status check_tuning(const AllGatherGemmTuning& t, const MachineShape& machine) {
  MK_RETURN_IF_ERROR(detail::check_blocks(t.blocks, machine));
  const int blocks = t.blocks != 0 ? t.blocks : static_cast<int>(machine.blocks);
  if (t.comm_blocks < 0 || t.comm_blocks > blocks)
    return refuse("comm_blocks", t.comm_blocks,
                  "0 (plan chooses) to " + std::to_string(blocks) + " (blocks)");
  if (t.chunk_rows < 0 || t.chunk_rows > kMaxExtent)
    return refuse("chunk_rows", t.chunk_rows, "0 (plan chooses) to " + std::to_string(kMaxExtent));
  std::string widths = "0 (plan chooses)";
  for (const TileWidth& width : machine.tile_widths) {
    if (t.tile_n == static_cast<int>(width.cols)) return Status::ok();
    widths += ", " + std::to_string(width.cols);
  }
  return t.tile_n == 0 ? Status::ok() : refuse("tile_n", t.tile_n, widths + " are allowed");
}

/// Copies of 8 MiB, since each takes an engine some 2 us to start, and the host two calls (m =
/// 4096: 259 us with 2 MiB, 228 with 4, 209 with 8; two H200, 2026-11-29, n = 2048, k = 8192); but
/// at least two to a slice, so that the first tiles need not wait for all of it.
uint64_t engine_chunk_bytes(uint64_t slice_bytes) {
  return std::clamp<uint64_t>(slice_bytes / 2, 1 << 20, 8 << 20);
}

}  // namespace

RowRange rows_of_rank(int64_t m, int world_size, int rank) {
  const Rows rows = RowSplit{static_cast<uint64_t>(m), static_cast<uint32_t>(world_size)}.slice(
      static_cast<uint32_t>(rank));
  return {static_cast<int64_t>(rows.begin), static_cast<int64_t>(rows.count)};
}

class AllGatherGemm::Impl {
 public:
  Impl(std::shared_ptr<detail::Rank> rank, const AllGatherGemmShape& shape)
      : rank_(std::move(rank)), shape_(shape) {}

  Status init(const AllGatherGemmTuning& tuning) {
    const MachineShape machine = rank_->machine().shape();
    MK_RETURN_IF_ERROR(detail::check_extents(shape_.m, shape_.n, shape_.k));
    MK_RETURN_IF_ERROR(check_tuning(tuning, machine));
    MK_RETURN_IF_ERROR(choose_push(tuning, machine));
    choose_schedule(tuning, machine);
    choose_blocks(tuning, machine);
    choose_tiles(tuning, machine);
    MK_RETURN_IF_ERROR(check_sizes());
    return claim_work_space(tuning);
  }

  Status run(StreamHandle stream, const Matrix& a, const Matrix& b, const Matrix& c) {
    MK_RETURN_IF_ERROR(rank_->cluster().status());
    AllGatherGemmWork op = work_;
    MK_RETURN_IF_ERROR(
        detail::take_operands(op, {own_rows(), shape_.n, shape_.k, shape_.m}, a, b, c));
    rank_->wake_network();
    MK_RETURN_IF_ERROR(rank_->machine().launch(op, pushes_, stream));
    has_run_ = true;
    return Status::ok();
  }

  Result<Matrix> gathered_a() const {
    if (!shape_.gather_a)
      return Status(Code::kInvalidArgument, "gathered_a: the plan was made without gather_a");
    if (!has_run_) return Status(Code::kInvalidArgument, "gathered_a: no run yet");
    return Matrix{region().data, shape_.m, shape_.k,
                  static_cast<int64_t>(work_.slot_pitch / kElementBytes)};
  }

  std::string describe() const {
    std::ostringstream out;
    out << work_.num_blocks << " blocks, " << work_.split.comm_blocks
        << " of them communicate first"
        << ", " << describe_tiles() << " in bands of " << work_.tiles.band << ", chunks of "
        << work_.tasks.chunks.chunk_rows
        << " rows = " << work_.tasks.chunks.chunk_rows * work_.slot_pitch << " bytes, "
        << (work_.tasks.engine_pushes ? "pushed by copy engines" : "pushed by blocks") << ", "
        << (work_.tasks.stage_own ? "own rows staged" : "own rows in place") << ", work space "
        << workspace_bytes() << " bytes";
    return out.str();
  }

  uint64_t workspace_bytes() const { return region().bytes; }

 private:
  const HeapRegion& region() const { return *space_->of(rank_->rank()).region; }
  int64_t own_rows() const {
    return static_cast<int64_t>(work_.tiles.split.slice(rank_->rank()).count);
  }

  uint32_t num_slots() const { return shape_.gather_a || uses_engines_ ? 1 : kMaxSlots; }

  Status choose_push(const AllGatherGemmTuning& tuning, const MachineShape& machine) {
    const ClusterShape cluster = rank_->cluster().shape();
    const bool can = machine.copy_engines && cluster.nodes == 1 && !shape_.gather_a;
    if (tuning.push == Push::kEngine && !can)
      return Status(
          Code::kUnsupported,
          "push = engine: needs one node, a GPU per rank with direct links, and no gather_a");
    // Of three shapes measured beside each other (README: m = 2048, 4096, 8192) engines won none by
    // more than 2 %; with chunks of 8 MiB they won m = 4096 by 9 %, which is too little to go by.
    uses_engines_ = tuning.push == Push::kEngine && cluster.gpus > 1;
    return Status::ok();
  }

  void choose_schedule(const AllGatherGemmTuning& tuning, const MachineShape& machine) {
    const ClusterShape cluster = rank_->cluster().shape();
    const RowSplit split{static_cast<uint64_t>(shape_.m), cluster.world()};
    detail::place(work_, *rank_);
    work_.k = static_cast<uint32_t>(shape_.k);
    work_.dtype = shape_.dtype;
    work_.b_layout = shape_.b_layout;
    // 16 bytes are what bulk copies and tensor maps can address.
    work_.slot_pitch = round_up<uint64_t>(work_.row_bytes(), 16);
    // A tile waits for one flag only: chunks are whole tiles.
    const uint64_t slice_bytes = split.largest() * work_.slot_pitch;
    const uint64_t chunk_bytes =
        uses_engines_ ? engine_chunk_bytes(slice_bytes) : machine.chunk_bytes;
    const uint64_t wanted = tuning.chunk_rows != 0 ? static_cast<uint64_t>(tuning.chunk_rows)
                                                   : ceil_div(chunk_bytes, work_.slot_pitch);
    const uint64_t most =
        round_up<uint64_t>(std::max<uint64_t>(split.largest(), 1), machine.tile_m);
    auto chunk_rows =
        static_cast<uint32_t>(std::min<uint64_t>(round_up<uint64_t>(wanted, machine.tile_m), most));
    // One plan should not take more than a part of the flags that all plans share.
    const auto flags = [&] {
      return uint64_t{num_slots()} * cluster.world() * ChunkMap{split, chunk_rows}.max_chunks();
    };
    while (tuning.chunk_rows == 0 && chunk_rows < most && flags() > kMaxFlags / 8) chunk_rows *= 2;
    work_.tiles = {cluster,        split,        rank_->rank(), static_cast<uint32_t>(shape_.n),
                   machine.tile_m, /*tile_n=*/1, machine.band};
    // The network reads from work space; so does who asks for the gathered A.
    const bool stage_own = cluster.nodes > 1 || shape_.gather_a;
    work_.tasks = {cluster, {split, chunk_rows}, rank_->rank(), stage_own, uses_engines_};
    work_.ends_together = uses_engines_;
  }

  void choose_blocks(const AllGatherGemmTuning& tuning, const MachineShape& machine) {
    work_.num_blocks = tuning.blocks != 0 ? static_cast<uint32_t>(tuning.blocks) : machine.blocks;
    if (work_.tasks.size() == 0) return;
    const uint32_t wanted =
        tuning.comm_blocks != 0 ? static_cast<uint32_t>(tuning.comm_blocks) : machine.comm_blocks;
    work_.split.comm_blocks = std::min(wanted, work_.num_blocks);
  }

  /// Each rank for itself: chunks and flags, which ranks share, do not depend on it.
  void choose_tiles(const AllGatherGemmTuning& tuning, const MachineShape& machine) {
    work_.tiles.tile_n = tuning.tile_n != 0 ? static_cast<uint32_t>(tuning.tile_n)
                                            : choose_tile_n(product(), machine.tile_widths);
  }

  TiledProduct product() const {
    const GatherTileOrder& t = work_.tiles;
    return {t.split, t.cols, t.tile_m, work_.num_blocks};
  }

  /// The tiles, and what the choice weighed: waves x cost of a step, in steps of the widest.
  std::string describe_tiles() const {
    std::ostringstream chosen, other;
    for (const TileWidth& width : rank_->machine().shape().tile_widths)
      (width.cols == work_.tiles.tile_n ? chosen : other)
          << work_.tiles.tile_m << "x" << width.cols << ": "
          << estimate_tiles(product(), width).waves << " x "
          << static_cast<double>(width.step_cost) / kStepCost;
    return "tiles " + chosen.str() + " waves (" + other.str() + ")";
  }

  Status check_sizes() const {
    const GatherTileOrder& t = work_.tiles;
    const uint64_t tiles = uint64_t{t.row_tiles()} * t.col_tiles() * t.cluster.world();
    // Every block draws one ticket beyond the end.
    if (tiles > UINT32_MAX - work_.num_blocks)
      return refuse("output tiles", static_cast<int64_t>(tiles), "must stay below 2^32");
    const uint64_t chunk_bytes = work_.tasks.chunks.chunk_rows * work_.slot_pitch;
    if (t.cluster.nodes > 1 && chunk_bytes > UINT32_MAX)
      return refuse("bytes per message between nodes", static_cast<int64_t>(chunk_bytes),
                    "must stay below 4 GiB: chunk_rows times k is too large");
    return Status::ok();
  }

  Status claim_work_space(const AllGatherGemmTuning& tuning) {
    const uint32_t rank = rank_->rank();
    detail::Cluster& cluster = rank_->cluster();
    const bool uses_slots = work_.tasks.size() > 0 || uses_engines_;
    work_.slot_bytes =
        uses_slots ? round_up<uint64_t>(static_cast<uint64_t>(shape_.m) * work_.slot_pitch, 256)
                   : 0;
    // What is lent to the caller has one place, and so has what copy engines write: a captured
    // launch that is replayed finds it there.
    work_.lends_slot = shape_.gather_a;
    work_.flags = {0, cluster.shape().world(), num_slots(),
                   uses_slots ? work_.tasks.chunks.max_chunks() : 0};
    if (work_.flags.size() > kMaxFlags)
      return refuse("flags", static_cast<int64_t>(work_.flags.size()),
                    "at most " + std::to_string(kMaxFlags) + ": choose a larger chunk_rows");
    auto space =
        cluster.join_plan(rank, signature_of(shape_, tuning), work_.flags.slots * work_.slot_bytes,
                          static_cast<uint32_t>(work_.flags.size()));
    if (!space) return space.status();
    space_ = std::move(space.value());
    const detail::PlanRank& mine = space_->of(rank);
    detail::attach(work_, *rank_, *space_);
    work_.flags.first = mine.flags->first;
    if (uses_engines_) {
      pushes_ = engine_pushes(work_, mine.host_slots.data(), mine.host_flags.data());
      for (const EnginePush& p : pushes_) work_.engine_bytes += p.rows * work_.row_bytes();
    }
    return Status::ok();
  }

  std::shared_ptr<detail::Rank> rank_;  // outlives the work space
  AllGatherGemmShape shape_;
  std::shared_ptr<detail::PlanSpace> space_;
  AllGatherGemmWork work_;  // all but the operands
  bool uses_engines_ = false;
  std::vector<EnginePush> pushes_;
  bool has_run_ = false;
};

AllGatherGemm::AllGatherGemm(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
AllGatherGemm::AllGatherGemm(AllGatherGemm&&) noexcept = default;
AllGatherGemm& AllGatherGemm::operator=(AllGatherGemm&&) noexcept = default;
AllGatherGemm::~AllGatherGemm() = default;

Result<AllGatherGemm> AllGatherGemm::create(const Context& context, const AllGatherGemmShape& shape,
                                            const AllGatherGemmTuning& tuning) {
  auto impl = std::make_unique<Impl>(context.impl(), shape);
  MK_RETURN_IF_ERROR(impl->init(tuning));
  return AllGatherGemm(std::move(impl));
}

Status AllGatherGemm::run(StreamHandle stream, const Matrix& a, const Matrix& b, const Matrix& c) {
  return impl_->run(stream, a, b, c);
}

Result<Matrix> AllGatherGemm::gathered_a() { return impl_->gathered_a(); }
std::string AllGatherGemm::describe() const { return impl_->describe(); }
uint64_t AllGatherGemm::workspace_bytes() const { return impl_->workspace_bytes(); }

}  // namespace mkernel
