// Ranks as processes of their own, to be killed and stopped. They are forked while this process has
// no other threads, so a test makes them before anything else.
#pragma once
#include <gtest/gtest.h>
#include <poll.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>
#include <functional>
#include <string>
#include <utility>
#include <vector>

#include "rendezvous/groups.h"
#include "rendezvous/owned_fd.h"
#include "rendezvous/socket.h"
#include "rendezvous/text.h"

namespace mkernel::test {

class ChildRanks {
 public:
  /// What a child can do beside its body: tell this process something, a line at a time.
  using Say = std::function<void(const std::string& line)>;

  /// Runs body(options[i], say) in a process for each i. Nobody but rank 0 keeps the listener.
  template <class Body>
  ChildRanks(std::vector<RendezvousOptions> options, Body body) {
    for (size_t i = 0; i < options.size(); ++i) {
      int ends[2];
      EXPECT_EQ(pipe(ends), 0);
      children_.push_back({.lines = OwnedFd(ends[0])});
      OwnedFd write_end(ends[1]);
      children_.back().pid = fork();
      if (children_.back().pid != 0) continue;
      if (i > 0) options[0].listener.reset();
      children_.clear();  // so that nobody holds the others' ends
      body(options[i], [&](std::string line) {
        line += '\n';
        if (write(write_end.get(), line.data(), line.size()) < 0) _exit(3);
      });
      _exit(0);
    }
  }

  /// None of them outlives this, stopped or not.
  ~ChildRanks() {
    for (const Child& child : children_) (void)kill(child.pid, SIGKILL);
    for (const Child& child : children_) (void)waitpid(child.pid, nullptr, 0);
  }
  ChildRanks(const ChildRanks&) = delete;
  ChildRanks& operator=(const ChildRanks&) = delete;

  void signal(size_t i, int number) const { EXPECT_EQ(kill(children_[i].pid, number), 0); }
  pid_t pid(size_t i) const { return children_[i].pid; }

  /// The next line that the child says; empty if it ends without one.
  std::string line_of(size_t i) {
    Child& child = children_[i];
    const int64_t deadline_us = steady_us() + kLongUs;
    while (child.said.find('\n') == std::string::npos) {
      char bytes[256];
      Result<bool> ready = wait_for(child.lines.get(), POLLIN, deadline_us);
      const ssize_t count = ready && *ready ? read(child.lines.get(), bytes, sizeof bytes) : 0;
      if (count <= 0) return "";
      child.said.append(bytes, static_cast<size_t>(count));
    }
    const size_t end = child.said.find('\n');
    std::string line = child.said.substr(0, end);
    child.said.erase(0, end + 1);
    return line;
  }

 private:
  struct Child {
    pid_t pid = -1;
    OwnedFd lines;
    std::string said = {};
  };
  std::vector<Child> children_;
};

}  // namespace mkernel::test
