// The transports that the conformance suite runs against.
#pragma once
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "transport/test_ranks.h"

namespace mkernel::test {

struct TransportCase {
  std::string name;
  uint32_t max_in_flight;
  std::function<std::vector<std::unique_ptr<Endpoint>>(std::span<SymmetricHeap* const>)> create;
};

inline TransportCase loopback_case(const std::string& name, const LoopbackConfig& config) {
  return {name, config.max_in_flight, [config](std::span<SymmetricHeap* const> heap_of_rank) {
            return value_of(create_loopback(config, heap_of_rank));
          }};
}

inline std::vector<TransportCase> all_transports() {
  LoopbackOptions reordered;
  reordered.order = LinkOrder::kReordered;
  reordered.seed = base_seed() + 1;
  LoopbackOptions slow;
  slow.link_gbs = 1;
  slow.link_us = 20;
  LoopbackOptions slow_reordered = slow;
  slow_reordered.order = LinkOrder::kReordered;
  slow_reordered.seed = base_seed() + 2;
  return {
      loopback_case("LoopbackInOrder", {}),
      loopback_case("LoopbackReordered", {.link = reordered}),
      loopback_case("LoopbackSlow", {.link = slow}),
      loopback_case("LoopbackSlowReordered", {.link = slow_reordered}),
      loopback_case("LoopbackShallow", {.max_in_flight = 2}),
      loopback_case("LoopbackDepth16Reordered", {.link = reordered, .max_in_flight = 16}),
  };
}

}  // namespace mkernel::test
