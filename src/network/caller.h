// Holds the callers of an endpoint to the contract: one thread posts and polls.
#pragma once
#include <atomic>
#include <thread>

namespace mkernel {

class Caller {
 public:
  /// Whether the calling thread is the first one that ever asked.
  bool is_first() {
    std::thread::id owner;
    return owner_.compare_exchange_strong(owner, std::this_thread::get_id(),
                                          std::memory_order_relaxed) ||
           owner == std::this_thread::get_id();
  }

 private:
  std::atomic<std::thread::id> owner_{};
};

}  // namespace mkernel
