// How a proxy rests between passes in which it found nothing to do. Pure. Threads: one.
#pragma once
#include <algorithm>
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
  /// Sleeps are as short as this, so that a command, or an arrival, that comes meanwhile is seen
  /// within 100 us. Only right where the thread's timer slack is far below; the default is 50 us.
  static constexpr std::chrono::nanoseconds kShortestSleep{90'000};
  /// They are longer where a core would be busy with waking up, for more than a 20th of its time
  /// (and a little is for looking): on virtual machines that takes from 4 to 30 us.
  static constexpr uint64_t kSleepPerCost = 22;
  static constexpr std::chrono::nanoseconds kLongestSleep{1'000'000};
  /// Sleeps between two looks at what they cost.
  static constexpr uint32_t kSleepsPerLook = 32;

  /// How long to sleep. processor_time_ns(): what the thread has used so far.
  template <class ProcessorTimeNs>
  std::chrono::nanoseconds sleep(ProcessorTimeNs&& processor_time_ns) {
    const uint32_t before = sleeps_++;
    if (before % kSleepsPerLook != 0) return sleep_;
    const uint64_t now_ns = processor_time_ns();
    if (before != 0)
      sleep_ = std::clamp(
          std::chrono::nanoseconds((now_ns - looked_ns_) / kSleepsPerLook * kSleepPerCost),
          kShortestSleep, kLongestSleep);
    looked_ns_ = now_ns;
    return sleep_;
  }

  Rest after_pass(bool worked, bool in_flight) {
    if (worked) {
      idle_passes_ = 0;
      sleeps_ = 0;  // what work costs is no cost of sleeping
    }
    if (idle_passes_ < kSpins + kYields) ++idle_passes_;
    if (worked || idle_passes_ <= kSpins) return Rest::kNone;
    if (in_flight || idle_passes_ < kSpins + kYields) return Rest::kYield;
    return Rest::kSleep;
  }

 private:
  uint32_t idle_passes_ = 0;  // in a row; no longer counted where it makes no difference
  uint32_t sleeps_ = 0;       // in a row
  uint64_t looked_ns_ = 0;    // processor time when it was last looked at
  std::chrono::nanoseconds sleep_ = kShortestSleep;
};

}  // namespace mkernel
