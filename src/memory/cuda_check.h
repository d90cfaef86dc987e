// The one way in which the result of a CUDA run-time call becomes a Status.
#pragma once
#include <cuda_runtime.h>

#include <string>

#include <mkernel/status.h>

namespace mkernel {

inline Status cuda_status(const char* call, cudaError_t error) {
  // Takes the error out of the run time, or the next call, of whoever, would report it again.
  (void)cudaGetLastError();
  return Status(Code::kInternal, std::string(call) + ": " + cudaGetErrorString(error));
}

}  // namespace mkernel

/// Returns Status(kInternal, "<call>: <error>") from the enclosing function if the call failed.
#define MK_CUDA_CHECK(call)                                             \
  do {                                                                  \
    if (const cudaError_t mk_error_ = (call); mk_error_ != cudaSuccess) \
      return ::mkernel::cuda_status(#call, mk_error_);                  \
  } while (false)
