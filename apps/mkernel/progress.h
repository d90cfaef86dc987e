// How far long work is, on stderr: one line that is rewritten on a terminal, a line every few
// seconds elsewhere, and nothing for work of less than a second.
#pragma once
#include <chrono>
#include <cstdint>
#include <mutex>
#include <string>

namespace mkernel::app {

/// Threads: any.
class Progress {
 public:
  /// `shows`: false in processes that leave the talking to another one.
  Progress(std::string what, int64_t num_steps, bool shows = true);
  ~Progress();
  Progress(const Progress&) = delete;
  Progress& operator=(const Progress&) = delete;

  void advance();

 private:
  using Clock = std::chrono::steady_clock;

  const std::string what_;
  const int64_t num_steps_;
  const bool shows_;
  const bool terminal_;
  std::mutex mutex_;  // guards what follows
  int64_t step_ = 0;
  Clock::time_point next_;
  bool shown_ = false;
};

}  // namespace mkernel::app
