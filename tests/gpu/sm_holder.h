// A kernel that keeps some SMs of a GPU from all others, as a user's own kernel may.
#pragma once
#include <memory>

namespace mkernel::harness {

class SmHolder {
 public:
  /// Holds `sms` SMs of each of the GPUs 0 to devices - 1 until it is destroyed, 10 s at the most.
  SmHolder(int devices, int sms);
  ~SmHolder();
  SmHolder(const SmHolder&) = delete;
  SmHolder& operator=(const SmHolder&) = delete;

  /// False once it let go of them by itself, or never got them.
  bool holds() const;

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace mkernel::harness
