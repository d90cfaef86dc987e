// Functions of the CUDA driver, found at run time: a machine without a GPU has no driver to link.
#pragma once
#include <cuda.h>
#include <cuda_runtime.h>

#include <string>

#include <mkernel/status.h>

#include "memory/cuda_check.h"

namespace mkernel {

/// The driver's function of this name, as of `version` (11070 is CUDA 11.7).
/// Errors: unavailable if the driver is older.
template <class Function>
Status find_driver_function(const char* name, unsigned version, Function* out) {
  void* entry = nullptr;
  cudaDriverEntryPointQueryResult found = cudaDriverEntryPointSymbolNotFound;
  MK_CUDA_CHECK(cudaGetDriverEntryPointByVersion(name, &entry, version, cudaEnableDefault, &found));
  if (found != cudaDriverEntryPointSuccess || entry == nullptr)
    return Status(Code::kUnavailable, std::string("the CUDA driver has no ") + name);
  *out = reinterpret_cast<Function>(entry);
  return Status::ok();
}

/// The outcome of a call of the driver.
inline Status driver_status(const char* call, CUresult result) {
  if (result == CUDA_SUCCESS) return Status::ok();
  const bool full = result == CUDA_ERROR_OUT_OF_MEMORY;
  return Status(full ? Code::kUnavailable : Code::kInternal,
                std::string(call) + ": CUresult " + std::to_string(result));
}

}  // namespace mkernel
