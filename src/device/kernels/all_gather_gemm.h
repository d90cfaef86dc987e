// The compiled instances of the AllGather+GEMM kernel.
#pragma once
#include "device/kernels/kernel_instance.h"

namespace mkernel {

// Tiles of 128 x 256.
KernelInstance all_gather_gemm_bf16_kn();
KernelInstance all_gather_gemm_bf16_nk();
KernelInstance all_gather_gemm_fp16_kn();
KernelInstance all_gather_gemm_fp16_nk();
// Tiles of 128 x 128.
KernelInstance all_gather_gemm_bf16_kn_n128();
KernelInstance all_gather_gemm_bf16_nk_n128();
KernelInstance all_gather_gemm_fp16_kn_n128();
KernelInstance all_gather_gemm_fp16_nk_n128();

}  // namespace mkernel
