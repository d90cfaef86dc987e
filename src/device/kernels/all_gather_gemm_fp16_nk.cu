#include "device/kernels/all_gather_gemm.cuh"

namespace mkernel {

KernelInstance all_gather_gemm_fp16_nk() {
  return all_gather_gemm_instance<GemmConfig<DType::kFp16, BLayout::kNK>>();
}

}  // namespace mkernel
