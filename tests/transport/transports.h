// The transports that the conformance suite runs against.
#pragma once
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "network/libfabric/libfabric.h"
#include "transport/test_ranks.h"

namespace mkernel::test {

struct TransportCase {
  std::string name;
  uint32_t max_in_flight;
  std::function<std::vector<std::unique_ptr<Endpoint>>(std::span<SymmetricHeap* const>)> create;
  std::function<std::string()> why_not = [] { return std::string(); };  // empty: it can run here
};

inline TransportCase loopback_case(const std::string& name, const LoopbackConfig& config) {
  return {name, config.max_in_flight, [config](std::span<SymmetricHeap* const> heap_of_rank) {
            return value_of(create_loopback(config, heap_of_rank));
          }};
}

/// libfabric's tcp on the loopback interface, which every machine has.
inline LibfabricOptions libfabric_on_loopback() {
  LibfabricOptions options;
  options.provider = "tcp";
  options.interface = "127.0.0.1";
  return options;
}

inline Result<std::unique_ptr<Endpoint>> create_libfabric_for_test(const LibfabricOptions& options,
                                                                   SymmetricHeap& heap,
                                                                   uint32_t rank,
                                                                   uint32_t num_ranks) {
  constexpr uint64_t kLimitNs = 30'000'000'000;  // a loaded machine is slow, and not broken
  return create_libfabric(options, heap, rank, num_ranks, kLimitNs);
}

/// Why libfabric cannot be tested here; empty if it can.
inline std::string why_no_libfabric() {
  const TestRanks rank(1, 64);
  const Status status =
      create_libfabric_for_test(libfabric_on_loopback(), *rank.heap_of_rank[0], 0, 1).status();
  const bool is_missing =
      status.code() == Code::kUnavailable || status.code() == Code::kUnsupported;
  return is_missing ? status.message() : "";  // other errors are for the tests to show
}

inline TransportCase libfabric_case(const std::string& name, const LibfabricOptions& options) {
  return {name, options.max_in_flight,
          [options](std::span<SymmetricHeap* const> heap_of_rank) {
            std::vector<std::unique_ptr<Endpoint>> endpoints;
            for (uint32_t rank = 0; rank < heap_of_rank.size(); ++rank) {
              endpoints.push_back(value_of(create_libfabric_for_test(
                  options, *heap_of_rank[rank], rank, static_cast<uint32_t>(heap_of_rank.size()))));
            }
            return endpoints;
          },
          why_no_libfabric};
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
  const LibfabricOptions libfabric = libfabric_on_loopback();
  LibfabricOptions shallow = libfabric;
  shallow.max_in_flight = 2;
  LibfabricOptions depth_16 = libfabric;
  depth_16.max_in_flight = 16;
  LibfabricOptions in_parts = libfabric;
  in_parts.max_message_bytes = 1000;
  LibfabricOptions staged = libfabric;
  staged.staging = Staging::kAlways;
  LibfabricOptions staged_shallow = staged;  // many pieces, and one slot for them
  staged_shallow.max_in_flight = 16;
  staged_shallow.staging_slots = 1;
  staged_shallow.staging_chunk_bytes = 100;
  return {
      loopback_case("LoopbackInOrder", {}),
      loopback_case("LoopbackReordered", {.link = reordered}),
      loopback_case("LoopbackSlow", {.link = slow}),
      loopback_case("LoopbackSlowReordered", {.link = slow_reordered}),
      loopback_case("LoopbackShallow", {.max_in_flight = 2}),
      loopback_case("LoopbackDepth16Reordered", {.link = reordered, .max_in_flight = 16}),
      libfabric_case("Libfabric", libfabric),
      libfabric_case("LibfabricShallow", shallow),
      libfabric_case("LibfabricDepth16", depth_16),
      libfabric_case("LibfabricInParts", in_parts),
      libfabric_case("LibfabricStaged", staged),
      libfabric_case("LibfabricStagedInOneSlot", staged_shallow),
  };
}

}  // namespace mkernel::test
