// The compiled instances of the AllGather+GEMM kernel.
#pragma once
#include "device/kernels/kernel_instance.h"

namespace mkernel {

KernelInstance all_gather_gemm_bf16_kn();
KernelInstance all_gather_gemm_bf16_nk();
KernelInstance all_gather_gemm_fp16_kn();
KernelInstance all_gather_gemm_fp16_nk();

}  // namespace mkernel
