#include <cuda_runtime.h>

#include <chrono>
#include <cstdint>
#include <thread>
#include <vector>

#include "sm_holder.h"

namespace mkernel::harness {
namespace {

constexpr uint64_t kLimitNs = 10'000'000'000;
constexpr uint32_t kPollNs = 20'000;  // it should disturb by its SMs alone
/// As much as a block can have, so that no other one fits beside it.
constexpr int kSharedBytes = 227 << 10;

__device__ uint64_t now_ns() {
  uint64_t t;
  asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(t));
  return t;
}

/// `words` in pinned memory: how many blocks have started, and whether they should end.
__global__ void hold(uint32_t* words) {
  atomicAdd_system(&words[0], 1u);
  const uint64_t start_ns = now_ns();
  while (*static_cast<volatile uint32_t*>(&words[1]) == 0 && now_ns() - start_ns < kLimitNs)
    __nanosleep(kPollNs);
}

}  // namespace

struct SmHolder::Impl {
  explicit Impl(int held) : sms(held) {}

  const int sms;
  std::vector<cudaStream_t> streams;
  std::vector<uint32_t*> words;
};

SmHolder::SmHolder(int devices, int sms) : impl_(std::make_unique<Impl>(sms)) {
  for (int device = 0; device < devices; ++device) {
    cudaStream_t stream = nullptr;
    void* words = nullptr;
    (void)cudaSetDevice(device);
    (void)cudaFuncSetAttribute(hold, cudaFuncAttributeMaxDynamicSharedMemorySize, kSharedBytes);
    (void)cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking);
    (void)cudaHostAlloc(&words, 2 * sizeof(uint32_t), cudaHostAllocDefault);
    impl_->streams.push_back(stream);
    impl_->words.push_back(static_cast<uint32_t*>(words));
    impl_->words.back()[0] = impl_->words.back()[1] = 0;
    hold<<<sms, 1, kSharedBytes, stream>>>(impl_->words.back());
  }
  (void)cudaSetDevice(0);
  // Until it has them; holds() says whether it got them.
  for (const uint32_t* started : impl_->words)
    for (int ms = 0; ms < 1000; ++ms) {
      if (*static_cast<const volatile uint32_t*>(started) == static_cast<uint32_t>(sms)) break;
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
    }
}

SmHolder::~SmHolder() {
  for (size_t i = 0; i < impl_->streams.size(); ++i) {
    *static_cast<volatile uint32_t*>(&impl_->words[i][1]) = 1;
    (void)cudaStreamSynchronize(impl_->streams[i]);
    (void)cudaStreamDestroy(impl_->streams[i]);
    (void)cudaFreeHost(impl_->words[i]);
  }
}

bool SmHolder::holds() const {
  for (size_t i = 0; i < impl_->streams.size(); ++i)
    if (*static_cast<volatile uint32_t*>(&impl_->words[i][0]) !=
            static_cast<uint32_t>(impl_->sms) ||
        cudaStreamQuery(impl_->streams[i]) != cudaErrorNotReady)
      return false;
  return true;
}

}  // namespace mkernel::harness
