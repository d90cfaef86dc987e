#include "progress.h"

#include <unistd.h>

#include <cstdio>

namespace mkernel::app {

Progress::Progress(std::string what, int64_t num_steps, bool shows)
    : what_(std::move(what)),
      num_steps_(num_steps),
      shows_(shows),
      terminal_(isatty(STDERR_FILENO) == 1),
      next_(Clock::now() + std::chrono::seconds(1)) {}

Progress::~Progress() {
  if (shown_ && terminal_) std::fputs("\r\033[K", stderr);  // leave the line to what comes next
}

void Progress::advance() {
  const std::lock_guard lock(mutex_);
  ++step_;
  const Clock::time_point now = Clock::now();
  if (!shows_ || now < next_ || step_ == num_steps_) return;  // the end speaks for itself
  next_ = now + (terminal_ ? std::chrono::milliseconds(100) : std::chrono::milliseconds(5000));
  shown_ = true;
  const int64_t percent = 100 * step_ / num_steps_;
  const std::string text = what_ + ": " + std::to_string(step_) + " of " +
                           std::to_string(num_steps_) + " (" + std::to_string(percent) + " %)";
  // Where both streams end in one place, what was printed before comes before, and a line of
  // progress is written whole.
  std::fflush(stdout);
  std::fputs((terminal_ ? "\r\033[K" + text : text + "\n").c_str(), stderr);
}

}  // namespace mkernel::app
