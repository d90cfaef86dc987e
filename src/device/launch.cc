#include "device/launch.h"

#include <cuda_runtime.h>

#include <array>

#include "device/kernels/all_gather_gemm.h"
#include "device/kernels/gemm_reduce.h"
#include "device/kernels/repack.h"
#include "device/push_engine.h"
#include "device/scratch_pool.h"
#include "device/tensor_map.h"
#include "memory/cuda_check.h"

namespace mkernel {
namespace {

/// The instances of AllGather+GEMM for one element type and layout, by width of tile.
using Instances = std::array<KernelInstance, 2>;

Instances all_gather_gemm_of(DType dtype, BLayout layout) {
  const bool kn = layout == BLayout::kKN;
  if (dtype == DType::kBf16)
    return kn ? Instances{all_gather_gemm_bf16_kn(), all_gather_gemm_bf16_kn_n128()}
              : Instances{all_gather_gemm_bf16_nk(), all_gather_gemm_bf16_nk_n128()};
  return kn ? Instances{all_gather_gemm_fp16_kn(), all_gather_gemm_fp16_kn_n128()}
            : Instances{all_gather_gemm_fp16_nk(), all_gather_gemm_fp16_nk_n128()};
}

KernelInstance instance_of(const AllGatherGemmWork& op) {
  const Instances instances = all_gather_gemm_of(op.dtype, op.b_layout);
  return instances[op.tiles.tile_n == instances[0].tile_n ? 0 : 1];
}

KernelInstance gemm_reduce_of(DType dtype, BLayout layout) {
  const bool kn = layout == BLayout::kKN;
  if (dtype == DType::kBf16) return kn ? gemm_reduce_bf16_kn() : gemm_reduce_bf16_nk();
  return kn ? gemm_reduce_fp16_kn() : gemm_reduce_fp16_nk();
}

/// An operand that TMA can read: the caller's, or a copy that lives for one launch.
class AlignedOperand {
 public:
  AlignedOperand() = default;
  ~AlignedOperand() {
    if (copy_ != nullptr) (void)cudaFreeAsync(copy_, stream_);
  }
  AlignedOperand(const AlignedOperand&) = delete;
  AlignedOperand& operator=(const AlignedOperand&) = delete;

  Status init(const Matrix& m, const ScratchPool& pool, cudaStream_t stream) {
    view_ = m;
    if (m.rows == 0 || is_tma_aligned(m)) return Status::ok();
    stream_ = stream;
    view_.ld = round_up<int64_t>(m.cols, 16 / kElementBytes);
    const auto bytes = static_cast<size_t>(m.rows * view_.ld) * kElementBytes;
    MK_CUDA_CHECK(cudaMallocFromPoolAsync(&copy_, bytes, pool.handle(), stream));
    view_.data = copy_;
    MK_CUDA_CHECK(
        launch_repack({m.data, static_cast<uint64_t>(m.ld), copy_, static_cast<uint64_t>(view_.ld),
                       static_cast<uint64_t>(m.rows), static_cast<uint32_t>(m.cols)},
                      stream));
    return Status::ok();
  }
  const Matrix& view() const { return view_; }

 private:
  Matrix view_;
  void* copy_ = nullptr;
  cudaStream_t stream_ = nullptr;
};

/// A and B of a launch, as TMA reads them.
struct AlignedOperands {
  AlignedOperand a, b;

  Status init(const LaunchWork& op, uint64_t rows_a, uint64_t n, const ScratchPool& pool,
              cudaStream_t stream);
};

Matrix matrix(const void* data, uint64_t rows, uint64_t cols, uint64_t pitch) {
  return {const_cast<void*>(data), static_cast<int64_t>(rows), static_cast<int64_t>(cols),
          static_cast<int64_t>(pitch / kElementBytes)};
}

Status AlignedOperands::init(const LaunchWork& op, uint64_t rows_a, uint64_t n,
                             const ScratchPool& pool, cudaStream_t stream) {
  const bool kn = op.b_layout == BLayout::kKN;
  MK_RETURN_IF_ERROR(a.init(matrix(op.a, rows_a, op.k, op.a_pitch), pool, stream));
  return b.init(matrix(op.b, kn ? op.k : n, kn ? n : op.k, op.b_pitch), pool, stream);
}

/// The sources of A in the order of TileWork::source. An empty one is never read.
std::array<Matrix, 1 + kMaxSlots> sources_of(const AllGatherGemmWork& op, const Matrix& own,
                                             const char* slots) {
  std::array<Matrix, 1 + kMaxSlots> sources;
  sources[kOwnRows] = own;
  const uint64_t rows = op.slot_bytes == 0 ? 0 : op.tiles.split.rows;
  for (uint32_t slot = 0; slot < op.flags.slots; ++slot)
    sources[kFirstSlot + slot] = matrix(slots + slot * op.slot_bytes, rows, op.k, op.slot_pitch);
  return sources;
}

Status launch(const KernelInstance& kernel, uint32_t blocks, cudaStream_t stream, void** args) {
  cudaLaunchAttribute cluster{};
  cluster.id = cudaLaunchAttributeClusterDimension;
  cluster.val.clusterDim = {kernel.cluster, 1, 1};
  cudaLaunchConfig_t config{};
  config.gridDim = blocks;
  config.blockDim = kernel.threads;
  config.dynamicSmemBytes = kernel.shared_bytes;
  config.stream = stream;
  config.attrs = &cluster;
  config.numAttrs = 1;
  MK_CUDA_CHECK(cudaLaunchKernelExC(&config, kernel.function, args));
  return Status::ok();
}

}  // namespace

KernelShape kernel_shape() {
  // The rows and the cluster are the same for all instances, the columns of AllGather+GEMM for all
  // types and layouts; the sums of many ranks come in wide tiles.
  const auto [wide, narrow] = all_gather_gemm_of(DType::kBf16, BLayout::kKN);
  constexpr uint32_t kPadRows = 1, kPadCols = 8;  // as WarpSums lays them out
  return {wide.tile_m, {wide.tile_n, narrow.tile_n}, wide.cluster, kPadRows, kPadCols};
}

Status load_kernels() {
  for (const DType dtype : {DType::kBf16, DType::kFp16})
    for (const BLayout layout : {BLayout::kKN, BLayout::kNK}) {
      const auto [wide, narrow] = all_gather_gemm_of(dtype, layout);
      for (const KernelInstance& kernel : {wide, narrow, gemm_reduce_of(dtype, layout)})
        MK_CUDA_CHECK(cudaFuncSetAttribute(kernel.function,
                                           cudaFuncAttributeMaxDynamicSharedMemorySize,
                                           static_cast<int>(kernel.shared_bytes)));
    }
  MK_CUDA_CHECK(load_repack());
  return Status::ok();
}

Status launch_on_cuda(const AllGatherGemmWork& op, std::span<const EnginePush> pushes,
                      const LaunchResources& resources, void* stream_handle) {
  auto* stream = static_cast<cudaStream_t>(stream_handle);
  const uint64_t n = op.tiles.cols;
  AlignedOperands in;
  MK_RETURN_IF_ERROR(in.init(op, op.tiles.split.slice(op.rank).count, n, resources.pool, stream));
  const auto sources = sources_of(op, in.a.view(), op.own_slots);
  auto arguments = make_gemm_arguments({.a = sources,
                                        .b = in.b.view(),
                                        .c = matrix(op.c, op.tiles.split.rows, n, op.c_pitch),
                                        .b_layout = op.b_layout,
                                        .type = op.dtype});
  if (!arguments) return arguments.status();
  AllGatherGemmWork work = op;
  work.a = static_cast<const char*>(in.a.view().data);
  work.a_pitch = static_cast<uint64_t>(in.a.view().ld) * kElementBytes;
  void* args[] = {&work, &arguments.value()};
  const KernelInstance kernel = instance_of(op);
  if (pushes.empty()) return launch(kernel, op.num_blocks, stream, args);
  // The kernel first: it has its own rows to start with while the pushes are still being enqueued.
  MK_RETURN_IF_ERROR(resources.engine->fork(stream));
  MK_RETURN_IF_ERROR(launch(kernel, op.num_blocks, stream, args));
  MK_RETURN_IF_ERROR(resources.engine->push(work, pushes));
  return resources.engine->join(stream);
}

Status launch_on_cuda(const GemmReduceWork& op, const LaunchResources& resources,
                      void* stream_handle) {
  auto* stream = static_cast<cudaStream_t>(stream_handle);
  const uint64_t n = op.tiles.cols;
  AlignedOperands in;
  MK_RETURN_IF_ERROR(in.init(op, op.tiles.split.rows, n, resources.pool, stream));
  // C is stored by the protocol's outputs, not through a map.
  auto arguments = make_gemm_arguments({.a = std::span(&in.a.view(), 1),
                                        .b = in.b.view(),
                                        .c = matrix(nullptr, 0, n, n * kElementBytes),
                                        .b_layout = op.b_layout,
                                        .type = op.dtype});
  if (!arguments) return arguments.status();
  GemmReduceWork work = op;
  void* args[] = {&work, &arguments.value()};
  return launch(gemm_reduce_of(op.dtype, op.b_layout), op.num_blocks, stream, args);
}

}  // namespace mkernel
