// GEMM alone, by the vendor's library: the baseline that a fused operator is measured against.
// The library is opened at run time, never linked, so that the application starts without it.
#pragma once
#include <memory>

#include <mkernel/context.h>

#include "host_verify.h"

namespace mkernel::app {

class Gemm {
 public:
  virtual ~Gemm() = default;
  /// Enqueues product.c = product.a * product.b.
  virtual Status run(const Product& product, StreamHandle stream) = 0;
};

/// For the GPU that holds `memory`. Errors: unavailable if there is no cuBLAS on this machine.
Result<std::unique_ptr<Gemm>> create_cublas_gemm(const void* memory);

}  // namespace mkernel::app
