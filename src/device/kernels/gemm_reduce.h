// The compiled instances of the kernel of GEMM+ReduceScatter and GEMM+AllReduce.
#pragma once
#include "device/kernels/kernel_instance.h"

namespace mkernel {

KernelInstance gemm_reduce_bf16_kn();
KernelInstance gemm_reduce_bf16_nk();
KernelInstance gemm_reduce_fp16_kn();
KernelInstance gemm_reduce_fp16_nk();

}  // namespace mkernel
