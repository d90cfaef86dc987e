// The fused operators. A plan is made once per shape and rank, by all ranks in the same order;
// run() enqueues one launch and returns.
#pragma once
#include <cstdint>
#include <memory>
#include <string>

#include <mkernel/context.h>
#include <mkernel/tensor.h>

namespace mkernel {

/// Rows of a matrix of m rows that belong to `rank`: split in rank order, the first
/// (m mod world_size) ranks have one more.
struct RowRange {
  int64_t begin = 0;
  int64_t count = 0;
};
RowRange rows_of_rank(int64_t m, int world_size, int rank);

/// What an AllGather+GEMM computes.
struct AllGatherGemmShape {
  int64_t m = 0;  // rows of A over all ranks, >= 0
  int64_t n = 0;  // columns of this rank's B and C, >= 1
  int64_t k = 0;  // columns of A, rows of B, >= 1
  DType dtype = DType::kBf16;
  BLayout b_layout = BLayout::kKN;
  bool gather_a = false;  // also hand out the gathered A
};

/// Who writes a rank's rows into the memory of the ranks of its node.
enum class Push : uint8_t {
  kAuto,    // the plan chooses: blocks, so far
  kBlocks,  // communicating blocks of the kernel
  kEngine,  // copy engines, which cost no SM; one node, a GPU per rank, without gather_a
};

/// How to compute it. No choice changes results; 0 lets the plan choose.
struct AllGatherGemmTuning {
  int blocks = 0;       // blocks (SMs) per rank
  int comm_blocks = 0;  // of these, blocks that move data before they compute
  int chunk_rows = 0;   // rows per message, rounded up to whole tiles
  int tile_n = 0;       // columns of an output tile, one of those that the machine offers
  Push push = Push::kAuto;
};

/// c = (rows of A from all ranks) * b on every rank, where every rank has its own b.
/// Destroy a plan when no launch of it is in flight on any rank (synchronize first).
class AllGatherGemm {
 public:
  /// Collective over the cluster.
  /// Errors: invalid_argument for a size or tuning out of its range, if the work space would exceed
  /// ClusterOptions::heap_bytes_limit, or if another rank made another plan in its place;
  /// unsupported if push = engine cannot be had; unavailable if the device is full; what
  /// Context::synchronize reports, if an earlier launch failed.
  static Result<AllGatherGemm> create(const Context& context, const AllGatherGemmShape& shape,
                                      const AllGatherGemmTuning& tuning = {});

  AllGatherGemm(AllGatherGemm&&) noexcept;
  AllGatherGemm& operator=(AllGatherGemm&&) noexcept;
  ~AllGatherGemm();

  /// Enqueues one launch; every rank must run it, or the others time out.
  /// Shapes:  a [rows_of_rank(m), k], b [k, n] or [n, k] by layout, c [m, n]; any ld >= columns.
  /// Order:   returns after enqueue; c is valid in stream order, a and b are free to be written
  ///          then. Runs of one plan on several streams are the caller's to order.
  /// Errors:  invalid_argument for a view that does not fit the shape; what Context::synchronize
  ///          reports, if an earlier launch failed.
  Status run(StreamHandle stream, const Matrix& a, const Matrix& b, const Matrix& c);

  /// The gathered A [m, k] of the latest run, in work space, at the same place for every run; only
  /// with gather_a. Valid in stream order until the next run starts.
  Result<Matrix> gathered_a();

  /// What the plan chose, one line.
  std::string describe() const;
  uint64_t workspace_bytes() const;

  class Impl;

 private:
  explicit AllGatherGemm(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

/// What a GEMM+ReduceScatter or GEMM+AllReduce computes: activation(alpha * sum + bias + residual),
/// where sum is, over all ranks, the product of each rank's a [m, k] and b [k, n].
///
/// Sums are fp32 and have one order, which the numbers of nodes and of ranks per node alone give:
/// the ranks of a node, first to last, then the nodes. Every rank's product, where a node has
/// several, and every node's sum, where there are several nodes, is rounded once to `partials`. So
/// two runs give the same bits, and no element depends on m, n, who owns it, or tuning.
struct GemmReduceShape {
  int64_t m = 0;  // rows of the sum, >= 0
  int64_t n = 0;  // its columns, >= 1
  int64_t k = 0;  // this rank's share of the depth, >= 1; ranks may have different ones
  DType dtype = DType::kBf16;
  BLayout b_layout = BLayout::kKN;
  Partials partials = Partials::k16Bit;
  float alpha = 1;
  bool bias = false;      // add a row [n] to every row
  bool residual = false;  // add a matrix
  Activation activation = Activation::kNone;
  Output output = Output::kSame;
};

/// How to compute it. No choice changes results; 0 lets the plan choose.
struct GemmReduceTuning {
  int blocks = 0;                // blocks (SMs) per rank
  uint64_t workspace_bytes = 0;  // the most work space per rank; 0: 256 MiB
  int round_tiles = 0;           // tiles of each rank's rows that are computed in one go
};

/// Matrices of one run on one rank, any ld >= columns. All of dtype, but c of `output`.
struct GemmReduceOperands {
  Matrix a;              // [m, k]
  Matrix b;              // [k, n] or [n, k], by layout
  Matrix c;              // GemmReduceScatter: [rows_of_rank(m), n]; GemmAllReduce: [m, n]
  Matrix bias = {};      // [1, n], with shape.bias
  Matrix residual = {};  // [rows_of_rank(m), n], with shape.residual
};

/// What both plans share. Destroy a plan when no launch of it is in flight on any rank.
class GemmReduce {
 public:
  GemmReduce(GemmReduce&&) noexcept;
  GemmReduce& operator=(GemmReduce&&) noexcept;
  ~GemmReduce();

  /// Enqueues one launch; every rank must run it, or the others time out.
  /// Order:   returns after enqueue; c is valid in stream order, everything else is free to be
  ///          written then. Runs of one plan on several streams are the caller's to order.
  /// Errors:  invalid_argument for a view that does not fit the shape; what Context::synchronize
  ///          reports, if an earlier launch failed.
  Status run(StreamHandle stream, const GemmReduceOperands& operands);

  /// What the plan chose, one line.
  std::string describe() const;
  /// At most tuning.workspace_bytes.
  uint64_t workspace_bytes() const;

  class Impl;

 protected:
  explicit GemmReduce(std::unique_ptr<Impl> impl);

 private:
  std::unique_ptr<Impl> impl_;
};

/// c = this rank's rows of the sum, as rows_of_rank(m) splits them over all ranks.
class GemmReduceScatter : public GemmReduce {
 public:
  /// Collective over the cluster: all but k, b_layout and blocks must agree.
  /// Errors: invalid_argument for a size or tuning out of its range, if the work space that one
  /// tile per rank needs is beyond tuning.workspace_bytes or ClusterOptions::heap_bytes_limit, or
  /// if another rank made another plan in its place; unavailable if the device is full; what
  /// Context::synchronize reports, if an earlier launch failed.
  static Result<GemmReduceScatter> create(const Context& context, const GemmReduceShape& shape,
                                          const GemmReduceTuning& tuning = {});

 private:
  using GemmReduce::GemmReduce;
};

/// c = the whole sum, on every rank, the same bits everywhere. shape.output is what finished rows
/// travel in.
class GemmAllReduce : public GemmReduce {
 public:
  /// As GemmReduceScatter::create.
  static Result<GemmAllReduce> create(const Context& context, const GemmReduceShape& shape,
                                      const GemmReduceTuning& tuning = {});

 private:
  using GemmReduce::GemmReduce;
};

}  // namespace mkernel
