#include "device/kernels/all_gather_gemm.cuh"

namespace mkernel {

KernelInstance all_gather_gemm_bf16_kn() {
  return all_gather_gemm_instance<GemmConfig<DType::kBf16, BLayout::kKN>>();
}

}  // namespace mkernel
