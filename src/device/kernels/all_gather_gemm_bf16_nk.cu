#include "device/kernels/all_gather_gemm.cuh"

namespace mkernel {

KernelInstance all_gather_gemm_bf16_nk() {
  return all_gather_gemm_instance<GemmConfig<DType::kBf16, BLayout::kNK>>();
}

}  // namespace mkernel
