// What tests of groups need: ranks as threads, an address that is free, limits for slow machines.
#pragma once
#include <gtest/gtest.h>

#include <cstdlib>
#include <memory>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "rendezvous/process_group.h"

namespace mkernel::test {

constexpr int64_t kLongUs = 60'000'000;  // what must happen, happens long before

/// For set-up that has no reason to fail.
template <class T>
T value_of(Result<T> result) {
  if (!result) {
    ADD_FAILURE() << result.status().message();
    std::abort();
  }
  return std::move(result).value();
}

/// Options of a group on this machine, at a port that is free; rank 0 has it open already.
inline std::vector<RendezvousOptions> options_of(uint32_t world,
                                                 const std::string& run_id = "run") {
  const std::shared_ptr<Listener> listener = value_of(Listener::open("127.0.0.1:0"));
  std::vector<RendezvousOptions> all;
  for (uint32_t rank = 0; rank < world; ++rank) {
    all.push_back({.rank = rank,
                   .world = world,
                   .address = listener->address(),
                   .run_id = run_id,
                   .listener = rank == 0 ? listener : nullptr});
  }
  return all;
}

/// Runs body(i) for i below count, each in a thread of its own.
template <class Body>
void in_threads(size_t count, Body body) {
  std::vector<std::thread> threads;
  for (size_t i = 0; i < count; ++i) threads.emplace_back(body, i);
  for (std::thread& thread : threads) thread.join();
}

using Groups = std::vector<std::unique_ptr<ProcessGroup>>;

/// The ranks of the options, joined.
inline Groups join_all(const std::vector<RendezvousOptions>& options) {
  Groups groups(options.size());
  in_threads(options.size(),
             [&](size_t i) { groups[i] = value_of(ProcessGroup::join(options[i])); });
  return groups;
}

/// What each rank's join came to.
inline std::vector<Status> statuses_of_join(const std::vector<RendezvousOptions>& options) {
  std::vector<Status> statuses(options.size());
  in_threads(options.size(),
             [&](size_t i) { statuses[i] = ProcessGroup::join(options[i]).status(); });
  return statuses;
}

}  // namespace mkernel::test
