// Scoped atomics: the only code that touches a shared word, on host and device alike.
// Order belongs to these operations. There are no stand-alone fences in .h files: ThreadSanitizer
// cannot see them, so a fence would hide a race that the host machine is there to find.
#pragma once
#include <cstdint>

#include "core/target.h"
#if defined(__CUDACC__)
#include <cuda/atomic>
#endif
#if !defined(__CUDA_ARCH__)
#include <atomic>
#include <chrono>
#include <functional>
#include <thread>
#endif

namespace mkernel {

/// Who may be on the other side of a word: threads of this GPU, or also CPUs, NICs and other GPUs.
enum class Scope { kGpu, kSys };

namespace detail {

#if defined(MK_SCHEDULE_FUZZ) && !defined(__CUDA_ARCH__)
inline uint64_t fuzz() {
  thread_local uint64_t x = std::hash<std::thread::id>{}(std::this_thread::get_id()) | 1u;
  x ^= x << 13;
  x ^= x >> 7;
  return x ^= x << 17;
}
/// Fuzzing builds may give the processor away before any atomic, to visit rare interleavings.
inline void interleave() {
  if (fuzz() % 4 == 0) std::this_thread::yield();
}
/// And they may be late to move bytes, by more than a message to another node and back takes.
inline void dawdle() {
  if (fuzz() % 256 == 0) std::this_thread::sleep_for(std::chrono::milliseconds(50));
}
#else
MK_HD void interleave() {}
MK_HD void dawdle() {}
#endif

#if defined(__CUDA_ARCH__)
template <Scope S, class T>
using AtomicRef =
    cuda::atomic_ref<T, S == Scope::kGpu ? cuda::thread_scope_device : cuda::thread_scope_system>;
namespace order = cuda::std;
#else
template <Scope S, class T>
using AtomicRef = std::atomic_ref<T>;
namespace order = std;
#endif

}  // namespace detail

template <Scope S, class T>
MK_HD T load_acquire(T* p) {
  detail::interleave();
  return detail::AtomicRef<S, T>(*p).load(detail::order::memory_order_acquire);
}

template <Scope S, class T>
MK_HD T load_relaxed(T* p) {
  detail::interleave();
  return detail::AtomicRef<S, T>(*p).load(detail::order::memory_order_relaxed);
}

template <Scope S, class T>
MK_HD void store_release(T* p, T v) {
  detail::interleave();
  detail::AtomicRef<S, T>(*p).store(v, detail::order::memory_order_release);
}

template <Scope S, class T>
MK_HD void store_relaxed(T* p, T v) {
  detail::interleave();
  detail::AtomicRef<S, T>(*p).store(v, detail::order::memory_order_relaxed);
}

template <Scope S, class T>
MK_HD T add_relaxed(T* p, T v) {
  detail::interleave();
  return detail::AtomicRef<S, T>(*p).fetch_add(v, detail::order::memory_order_relaxed);
}

template <Scope S, class T>
MK_HD T add_acq_rel(T* p, T v) {
  detail::interleave();
  return detail::AtomicRef<S, T>(*p).fetch_add(v, detail::order::memory_order_acq_rel);
}

/// True once a counter that only grows has come to `want`; right across the wrap at 2^32 as long
/// as the two are less than 2^31 apart.
MK_HD bool reached(uint32_t have, uint32_t want) { return static_cast<int32_t>(have - want) >= 0; }

}  // namespace mkernel
