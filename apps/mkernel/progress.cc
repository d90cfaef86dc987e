#include "progress.h"

#include <cstdio>

#include <unistd.h>

namespace mkernel::app {

Progress::Progress(std::string what, int64_t num_steps)
    : what_(std::move(what)),
      num_steps_(num_steps),
      terminal_(isatty(STDERR_FILENO) == 1),
      next_(Clock::now() + std::chrono::seconds(1)) {}

Progress::~Progress() {
  if (shown_ && terminal_) std::fprintf(stderr, "\r\033[K");  // leave the line to what comes next
}

void Progress::advance() {
  const std::lock_guard lock(mutex_);
  ++step_;
  const Clock::time_point now = Clock::now();
  if (now < next_ || step_ == num_steps_) return;  // the end speaks for itself
  next_ = now + (terminal_ ? std::chrono::milliseconds(100) : std::chrono::milliseconds(5000));
  shown_ = true;
  const long long percent = 100 * step_ / num_steps_;
  std::fprintf(
      stderr, terminal_ ? "\r\033[K%s: %lld of %lld (%lld %%)" : "%s: %lld of %lld (%lld %%)\n",
      what_.c_str(), static_cast<long long>(step_), static_cast<long long>(num_steps_), percent);
}

}  // namespace mkernel::app
