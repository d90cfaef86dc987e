// How a proxy rests between passes in which it found nothing to do. Pure. Threads: one.
#pragma once
#include <chrono>
#include <cstdint>

namespace mkernel {

/// What to do before the next pass.
enum class Rest : uint8_t { kNone, kYield, kSleep };

/// At first none, so that a stream of commands is not delayed; soon the time slice; and after about
/// a millisecond sleep. While writes are in flight it stays awake: polling is what moves them.
class IdlePolicy {
 public:
  static constexpr uint32_t kSpins = 64;
  static constexpr uint32_t kYields = 1024;
  /// Long, because waking up is what costs: 5 us of processor time on a virtual machine, 5 % of
  /// such a period. Short, because a command, or an arrival, that comes meanwhile should be seen
  /// within 100 us. Only right where the thread's timer slack is far below; the default is 50 us.
  static constexpr std::chrono::microseconds kSleep{90};

  Rest after_pass(bool worked, bool in_flight) {
    if (worked) idle_passes_ = 0;
    if (idle_passes_ < kSpins + kYields) ++idle_passes_;
    if (worked || idle_passes_ <= kSpins) return Rest::kNone;
    if (in_flight || idle_passes_ < kSpins + kYields) return Rest::kYield;
    return Rest::kSleep;
  }

 private:
  uint32_t idle_passes_ = 0;  // in a row; no longer counted where it makes no difference
};

}  // namespace mkernel
