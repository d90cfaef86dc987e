#include "device/kernels/gemm_reduce.cuh"

namespace mkernel {

KernelInstance gemm_reduce_fp16_kn() { return gemm_reduce_instance<DType::kFp16, BLayout::kKN>(); }

}  // namespace mkernel
