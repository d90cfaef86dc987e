#include "device/kernels/gemm_reduce.cuh"

namespace mkernel {

KernelInstance gemm_reduce_bf16_nk() { return gemm_reduce_instance<DType::kBf16, BLayout::kNK>(); }

}  // namespace mkernel
