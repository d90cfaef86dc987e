#include "device/kernels/all_gather_gemm.cuh"

namespace mkernel {

KernelInstance all_gather_gemm_bf16_nk_n128() {
  return all_gather_gemm_instance<GemmConfig<DType::kBf16, BLayout::kNK, 1, 128>>();
}

}  // namespace mkernel
