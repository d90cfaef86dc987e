// The ranks of a cluster, one process each, while no kernel runs: they find each other, hand small
// texts round, and learn at once when one of them has failed. Not for data, and not for speed: all
// goes through rank 0.
#pragma once
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include <mkernel/rendezvous.h>
#include <mkernel/status.h>

namespace mkernel {

class Hub;

/// Thread safety: report_fault, fault, on_fault and what tells of ranks may be called by any
/// thread; collectives and leave by one at a time.
///
/// A process that forks after joining keeps its connection open in the child. Its death is then
/// seen by its silence, not at once.
class ProcessGroup {
 public:
  /// Collective. Returns when all ranks are there.
  /// Errors:  invalid_argument if an option is not allowed, or rank 0 refuses this rank, and why;
  ///          timeout if not all ranks come, and which; unavailable if rank 0 cannot listen.
  static Result<std::unique_ptr<ProcessGroup>> join(const RendezvousOptions& options);
  /// Leaves. Not from within the function of on_fault.
  ~ProcessGroup();
  ProcessGroup(const ProcessGroup&) = delete;
  ProcessGroup& operator=(const ProcessGroup&) = delete;

  uint32_t rank() const;
  uint32_t world() const;
  const std::string& run_id() const;
  /// Equal for ranks that can hand each other memory and files. Found by looking, not by counting.
  const std::string& host_of(uint32_t rank) const;
  /// All ranks of this rank's host, this one included, ascending.
  std::vector<uint32_t> ranks_of_this_host() const;
  /// "rank 3 (host h, pid 17)".
  std::string name_of(uint32_t rank) const;

  /// Every rank's contribution, by rank. Collective: all ranks call it in the same order. `what`
  /// names it, in up to 256 bytes, and must be the same everywhere. `mine`: up to 1 MiB, and up to
  /// 256 MiB over all ranks. The shortest limit of all ranks holds, in microseconds, 1 to 1e12.
  /// Rank 0 keeps the time; if it stands still, only the silence limit ends the wait.
  /// Errors:  the fault of the group, if there is one, at once; invalid_argument if ranks disagree
  ///          on `what`, a text is too long, or another one is under way; timeout if ranks do not
  ///          come, and which; peer_failed if one has left. What rank 0 finds wrong fails on all
  ///          ranks alike, and the next one may succeed.
  Result<std::vector<std::string>> all_gather(const std::string& what, std::string mine,
                                              int64_t timeout_us);
  /// Returns when all ranks have called it. As all_gather, of nothing.
  Status barrier(const std::string& what, int64_t timeout_us);

  /// Tells all ranks that this one has failed. Rank 0 takes the first report, and that one becomes
  /// the fault of all ranks, this one too: a moment after this call.
  void report_fault(const Status& why);
  /// `tell` is called once: when a rank reports a fault, dies or falls silent, from a thread of the
  /// group; or now, if that has happened. It must not call on_fault or leave. A later call replaces
  /// it, and returns when the former is not running; empty: nobody is told.
  void on_fault(std::function<void(const Status&)> tell);
  /// ok, or the fault of the group. Once there is one it stays.
  Status fault() const;

  /// Orderly goodbye: that this process ends is no fault from here on. Collectives that need it
  /// fail. After rank 0 has left, nobody is told of faults any more, so it should be the last: a
  /// barrier before leaving is good manners. May take a second if others do not answer.
  void leave();

 private:
  class Member;
  ProcessGroup(std::unique_ptr<Member> member, std::unique_ptr<Hub> hub);
  std::unique_ptr<Hub> hub_;  // rank 0's; null elsewhere
  std::unique_ptr<Member> member_;
};

}  // namespace mkernel
