// Threads that no signal of the application is delivered to.
#pragma once
#include <csignal>
#include <thread>
#include <utility>

namespace mkernel {

template <class Body>
std::thread start_quiet_thread(Body&& body) {
  // A thread starts with its creator's mask.
  sigset_t all, before;
  sigfillset(&all);
  pthread_sigmask(SIG_SETMASK, &all, &before);
  std::thread thread(std::forward<Body>(body));
  pthread_sigmask(SIG_SETMASK, &before, nullptr);
  return thread;
}

}  // namespace mkernel
