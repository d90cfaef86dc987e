// Proxy fences: order between ordinary accesses (generic proxy) and those of bulk copies and
// the tensor cores (async proxy). One PTX instruction per function.
#pragma once

namespace mkernel::ptx {

/// All state spaces. Needed between acquiring a flag and TMA loads of what its writer stored.
__device__ __forceinline__ void fence_proxy_async() {
  asm volatile("fence.proxy.async;" ::: "memory");
}

__device__ __forceinline__ void fence_proxy_async_global() {
  asm volatile("fence.proxy.async.global;" ::: "memory");
}

/// Shared memory only: ordinary stores to it before bulk stores from it.
__device__ __forceinline__ void fence_proxy_async_shared() {
  asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
}

}  // namespace mkernel::ptx
