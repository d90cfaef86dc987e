#include "device/kernels/gemm_reduce.cuh"

namespace mkernel {

KernelInstance gemm_reduce_fp16_nk() { return gemm_reduce_instance<DType::kFp16, BLayout::kNK>(); }

}  // namespace mkernel
