// The transports that the conformance suite runs against.
#pragma once
#include <algorithm>
#include <array>
#include <cstdlib>
#include <functional>
#include <iterator>
#include <memory>
#include <span>
#include <sstream>
#include <string>
#include <vector>

#include "network/libfabric/libfabric.h"
#include "network/staged.h"
#include "transport/fake_verbs.h"
#include "transport/remote_endpoint.h"
#include "transport/test_ranks.h"

namespace mkernel::test {

struct TransportCase {
  std::string name;
  uint32_t max_in_flight;
  std::function<std::vector<std::unique_ptr<Endpoint>>(std::span<SymmetricHeap* const>)> create;
  std::function<std::string()> why_not = [] { return std::string(); };  // empty: it can run here
  std::function<std::unique_ptr<DeviceMemory>()> memory = create_host_memory;
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

/// A network namespace, and the address that ranks in it have.
struct NetworkPlace {
  std::string name = {};  // empty: this process's
  std::string address = "127.0.0.1";
};

/// Every rank in a process of its own, in turn at the two places.
inline TransportCase libfabric_in_processes(const std::string& name,
                                            const LibfabricOptions& options,
                                            const std::array<NetworkPlace, 2>& places = {}) {
  const CreateEndpoint create = [=](SymmetricHeap& heap, uint32_t rank, uint32_t num_ranks) {
    const NetworkPlace& place = places[rank % 2];
    const std::string error = place.name.empty() ? "" : enter_network_namespace(place.name);
    EXPECT_EQ(error, "");
    LibfabricOptions own = options;
    own.interface = place.address;
    return value_of(create_libfabric_for_test(own, heap, rank, num_ranks));
  };
  return {name, options.max_in_flight,
          [=](auto heaps) { return create_in_processes(heaps, create); }, why_no_libfabric,
          create_memory_of_processes};
}

/// Between two network namespaces, if MKERNEL_TEST_NAMESPACES says "NAME ADDRESS NAME ADDRESS".
inline std::vector<TransportCase> transports_between_namespaces(const LibfabricOptions& direct,
                                                                const LibfabricOptions& staged) {
  const char* const text = std::getenv("MKERNEL_TEST_NAMESPACES");
  if (text == nullptr) return {};
  std::istringstream words(text);
  std::array<NetworkPlace, 2> places;
  for (NetworkPlace& place : places) words >> place.name >> place.address;
  return {libfabric_in_processes("LibfabricNamespaces", direct, places),
          libfabric_in_processes("LibfabricStagedNamespaces", staged, places)};
}

/// Endpoints of all ranks over one fake fabric, which lives as long as they do.
inline std::vector<std::unique_ptr<Endpoint>> create_fake(
    FakeFabric& fabric, std::span<SymmetricHeap* const> heap_of_rank,
    const VerbsOptions& options = {}, verbs::Service service = verbs::Service::kConnected) {
  const auto num_ranks = static_cast<uint32_t>(heap_of_rank.size());
  std::vector<std::unique_ptr<Endpoint>> endpoints;
  for (uint32_t rank = 0; rank < num_ranks; ++rank) {
    endpoints.push_back(
        value_of(verbs::create_endpoint(fabric.api(rank), {.service = service,
                                                           .options = options,
                                                           .heap = heap_of_rank[rank],
                                                           .rank = rank,
                                                           .num_ranks = num_ranks,
                                                           .limit_ns = 1'000'000'000,
                                                           .log = {}})));
  }
  return endpoints;
}

inline TransportCase fake_case(const std::string& name, uint32_t max_in_flight,
                               const FakeConfig& config, const VerbsOptions& options = {},
                               verbs::Service service = verbs::Service::kConnected) {
  return {name, max_in_flight,
          [config, options, service](std::span<SymmetricHeap* const> heap_of_rank) {
            FakeFabric fabric(config);
            return create_fake(fabric, heap_of_rank, options, service);
          }};
}

/// By way of bounce buffers, over a fake fabric.
inline TransportCase staged_case(const std::string& name, const StagedConfig& staged,
                                 const FakeConfig& config, verbs::Service service) {
  return {name, staged.max_in_flight,
          [staged, config, service](std::span<SymmetricHeap* const> heap_of_rank) {
            FakeFabric fabric(config);
            std::vector<std::unique_ptr<Endpoint>> endpoints;
            for (uint32_t rank = 0; rank < heap_of_rank.size(); ++rank) {
              StagedConfig own = staged;
              own.rank = rank;
              own.num_ranks = static_cast<uint32_t>(heap_of_rank.size());
              endpoints.push_back(
                  value_of(create_staged(own, *heap_of_rank[rank], [&](SymmetricHeap& bounce) {
                    return verbs::create_endpoint(fabric.api(rank), {.service = service,
                                                                     .heap = &bounce,
                                                                     .rank = rank,
                                                                     .num_ranks = own.num_ranks,
                                                                     .limit_ns = own.limit_ns});
                  })));
            }
            return endpoints;
          }};
}

inline std::vector<FakeDevice> fake_devices(size_t count, const FakeDevice& like = {}) {
  std::vector<FakeDevice> devices(count, like);
  for (size_t i = 0; i < count; ++i) devices[i].name = "fake" + std::to_string(i);
  return devices;
}

inline std::vector<TransportCase> verbs_transports() {
  const uint64_t seed = base_seed() + 3;
  const FakeDevice infiniband{.link_layer = verbs::LinkLayer::kInfiniband};
  const FakeDevice efa{.link_layer = verbs::LinkLayer::kEfa};
  FakeDevice shallow{.max_depth = 16, .inline_bytes = 0};
  FakeDevice shallow_efa{.link_layer = verbs::LinkLayer::kEfa, .max_depth = 16};
  // Small parts, so that the suite's writes are split.
  const VerbsOptions split{.devices = {"fake0", "fake1"}, .qps_per_peer = 4, .split_bytes = 256};
  const VerbsOptions two_rails{.devices = {"fake0", "fake1"}, .split_bytes = 1024};
  constexpr auto kSrd = verbs::Service::kDatagram;
  return {
      fake_case("Verbs", 256, {.seed = seed}),
      fake_case("VerbsInfiniband", 256, {.devices = {infiniband}, .seed = seed}),
      fake_case("Verbs4QueuePairs2Rails", 256, {.devices = fake_devices(2), .seed = seed}, split),
      fake_case("VerbsDepth16", 16, {.devices = {shallow}, .seed = seed}),
      fake_case("Efa", 256, {.devices = {efa}, .seed = seed, .late_immediates = true}, {}, kSrd),
      fake_case("Efa2Rails", 256,
                {.devices = fake_devices(2, efa), .seed = seed, .late_immediates = true}, two_rails,
                kSrd),
      fake_case("EfaDepth16", 16, {.devices = {shallow_efa}, .seed = seed}, {}, kSrd),
      staged_case("StagedVerbs", {.limit_ns = 1'000'000'000}, {.seed = seed},
                  verbs::Service::kConnected),
      staged_case("StagedEfa", {.limit_ns = 1'000'000'000},
                  {.devices = {efa}, .seed = seed, .late_immediates = true}, kSrd),
      staged_case("StagedEfaInOneSlot",
                  {.slots = 1, .piece_bytes = 100, .max_in_flight = 16, .limit_ns = 1'000'000'000},
                  {.devices = {shallow_efa}, .seed = seed}, kSrd),
  };
}

/// Endpoints of all ranks in this process on real devices, of which `names_of_rank` gives each its.
inline std::vector<std::unique_ptr<Endpoint>> create_system(
    std::span<SymmetricHeap* const> heap_of_rank, VerbsOptions options,
    const std::function<std::vector<std::string>(uint32_t)>& names_of_rank) {
  const auto num_ranks = static_cast<uint32_t>(heap_of_rank.size());
  std::vector<std::unique_ptr<Endpoint>> endpoints;
  for (uint32_t rank = 0; rank < num_ranks; ++rank) {
    options.devices = names_of_rank(rank);
    endpoints.push_back(
        value_of(create_verbs(options, *heap_of_rank[rank], rank, num_ranks, 5'000'000'000)));
  }
  return endpoints;
}

/// The verbs of the system, if MKERNEL_TEST_VERBS names two devices that reach each other: "a,b".
inline std::vector<TransportCase> system_transports() {
  const char* const names = std::getenv("MKERNEL_TEST_VERBS");
  if (names == nullptr) return {};
  const std::string text = names;
  const std::string a = text.substr(0, text.find(',')), b = text.substr(text.find(',') + 1);
  const VerbsOptions one{.depth = 16};
  const VerbsOptions split{.qps_per_peer = 2, .depth = 16, .split_bytes = 256};
  const auto crossed = [](const std::string& first, const std::string& second) {
    return [first, second](uint32_t rank) {
      return rank % 2 == 0 ? std::vector{first, second} : std::vector{second, first};
    };
  };
  const auto taking_turns = [a, b](uint32_t rank) { return std::vector{rank % 2 == 0 ? a : b}; };
  return {
      {"SystemVerbs", 16, [=](auto heaps) { return create_system(heaps, one, taking_turns); }},
      {"SystemVerbs2QueuePairs2Rails", 16,
       [=](auto heaps) { return create_system(heaps, split, crossed(a, b)); }},
  };
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
  std::vector<TransportCase> all = {
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
      libfabric_in_processes("LibfabricProcesses", libfabric),
      libfabric_in_processes("LibfabricStagedProcesses", staged),
  };
  std::ranges::move(verbs_transports(), std::back_inserter(all));
  std::ranges::move(system_transports(), std::back_inserter(all));
  std::ranges::move(transports_between_namespaces(libfabric, staged), std::back_inserter(all));
  return all;
}

}  // namespace mkernel::test
