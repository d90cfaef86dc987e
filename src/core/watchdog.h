// Bounded waits. Every wait for another rank goes through Watchdog::wait, has a limit
// and watches an abort word; whoever gives up writes down who waited for what.
#pragma once
#include <cstdint>

#include "core/sync.h"
#include "core/target.h"
#if !defined(__CUDA_ARCH__)
#include <chrono>
#include <thread>
#endif

namespace mkernel {

/// Every place where something waits. Registered here so that a report can be read.
enum class Place : uint32_t {
  kNone,
  kSlotFree,        // a writer, for a peer to have finished with the slot of an earlier launch
  kChunkArrived,    // a reader, for one chunk of another rank's rows
  kSumSlotFree,     // a rank, for the slot of an earlier round's partial or node's sum to be read
  kPartialArrived,  // a collector, for one tile's partial sum of a rank of its node
  kNodeSumArrived,  // an owner, for one tile's sum of another node
  kResultArrived,   // a rank, for one finished tile of another's rows
  kResultSlotFree,  // a sender, for a finished tile of an earlier round to be read
  kQueueSpace,      // a command's producer, for the proxy to complete earlier commands
  kTransport,       // the proxy, for the network (a failed completion, a lost peer)
};

/// What a wait is for; becomes part of the report if it never comes.
struct WaitSite {
  Place place;
  uint32_t peer;   // rank that has to act
  uint32_t chunk;  // chunk or slot index; 0 where there is only one
};

/// How long waits may last.
struct WaitLimits {
  uint64_t progress_ns;  // for somebody who is at work
  uint64_t contact_ns;   // for a rank that may not have begun; at least progress_ns
};

/// Which of the two a wait came to.
enum class Limit : uint32_t { kProgress, kContact };

/// Says of one wait when it has lasted too long. Pure. Whether the other side has begun is asked
/// at half of the limit of progress for the first time, so never in a launch that goes well. Who is
/// silent then may be late, up to the limit of contact; once it is heard it has the whole limit of
/// progress. Who had begun by then has had half of that at the least.
struct Patience {
  enum class Other : uint32_t { kUnknown, kSilent, kBegun };
  uint64_t since_ns;  // when the wait began or, if that is later, when a silent one was heard
  Other other = Other::kUnknown;

  template <class Heard>
  MK_HD bool is_over(uint64_t now_ns, const WaitLimits& limits, Heard&& heard) {
    const uint64_t waited_ns = now_ns - since_ns;
    if (other == Other::kBegun || waited_ns <= limits.progress_ns / 2)
      return waited_ns > limits.progress_ns;
    if (!heard()) {
      other = Other::kSilent;
      return waited_ns > limits.contact_ns;
    }
    if (other == Other::kSilent) since_ns = now_ns;
    other = Other::kBegun;
    return now_ns - since_ns > limits.progress_ns;
  }
};

/// The report of one failed wait. Written once per rank and machine side, by the one that trips.
struct FaultRecord {
  uint32_t tripped;  // 0 while healthy; released last
  Place place;
  uint32_t rank, peer, chunk;
  uint32_t expected, seen;
  Limit limit;
};

/// What a wait cost, for the statistics.
struct WaitResult {
  bool ok;
  bool waited;  // false: what was waited for was there at the first look
};

/// Limits and reports of one rank. Writers: any block or thread of the rank. `abort` is shared by
/// all ranks of a cluster in a process; it goes 0 -> 1 once (sys scope) and ends every wait.
struct Watchdog {
  uint32_t* abort;      // sys: 0 healthy, 1 everybody leaves
  uint32_t* claim;      // gpu: the first of this rank's waiters to trip takes it 0 -> 1
  FaultRecord* record;  // sys: written by the claimer only
  WaitLimits limits;
  uint32_t rank;

  MK_HD bool aborted() const { return load_relaxed<Scope::kSys>(abort) != 0; }

  /// Waits until the word that `load` reads has reached `want`, for one who is at work.
  template <class Load>
  MK_HD WaitResult wait(const WaitSite& site, uint32_t want, Load&& load) const {
    return wait(site, want, load, [] { return true; });
  }

  /// The same for one who may be late; `heard` says whether it has begun, as far as this rank can
  /// see, and is asked only where the wait has become long.
  template <class Load, class Heard>
  MK_HD WaitResult wait(const WaitSite& site, uint32_t want, Load&& load, Heard&& heard) const {
    uint32_t seen = load();
    if (reached(seen, want)) return {true, false};
    Patience patience{now_ns()};
    for (uint32_t spin = 1;; ++spin) {
      pause(spin);
      seen = load();
      if (reached(seen, want)) return {true, true};
      // The abort word may lie across PCIe and reading the clock is slow: look at them rarely.
      if (spin % kSpinsPerCheck != 0) continue;
      if (aborted()) return {false, true};
      if (!patience.is_over(now_ns(), limits, heard)) continue;
      trip(site, want, seen,
           patience.other == Patience::Other::kSilent ? Limit::kContact : Limit::kProgress);
      return {false, true};
    }
  }

  /// Records a fault, unless this rank has one, and makes every wait of the cluster end.
  MK_HD void trip(const WaitSite& site, uint32_t expected, uint32_t seen,
                  Limit limit = Limit::kProgress) const {
    if (add_relaxed<Scope::kGpu>(claim, 1u) == 0) {
      record->place = site.place;
      record->rank = rank;
      record->peer = site.peer;
      record->chunk = site.chunk;
      record->expected = expected;
      record->seen = seen;
      record->limit = limit;
      store_release<Scope::kSys>(&record->tripped, 1u);
    }
    store_release<Scope::kSys>(abort, 1u);
  }

#if defined(__CUDA_ARCH__)
  // About half a millisecond: hundreds of threads look at the abort word across PCIe, which slows
  // down whoever else uses it.
  static constexpr uint32_t kSpinsPerCheck = 512;
  // A hundred blocks poll the same few words, beside the copies that they wait for: pauses grow to
  // about the length of a poll. What this alone gains was not measured.
  static __device__ __forceinline__ void pause(uint32_t spin) {
    __nanosleep(spin < 5 ? 32u << spin : 1024u);
  }
  static __device__ __forceinline__ uint64_t now_ns() {
    uint64_t t;
    asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(t));
    return t;
  }
#else
  static constexpr uint32_t kSpinsPerCheck = 16;
  static void pause(uint32_t) { std::this_thread::yield(); }
  static uint64_t now_ns() {
    return static_cast<uint64_t>(std::chrono::steady_clock::now().time_since_epoch().count());
  }
#endif
};

}  // namespace mkernel
