// Ranks over a fake fabric, for tests of what verbs endpoints do.
#pragma once
#include <gtest/gtest.h>

#include <array>
#include <memory>
#include <string>
#include <vector>

#include "transport/transports.h"

namespace mkernel::test {

inline constexpr auto kSrd = verbs::Service::kDatagram;

struct VerbsRanks {
  explicit VerbsRanks(uint32_t num_ranks, const FakeConfig& config = {},
                      const VerbsOptions& options = {},
                      verbs::Service service = verbs::Service::kConnected,
                      uint64_t region_bytes = 64 << 10)
      : ranks(num_ranks, region_bytes),
        fabric(config),
        endpoints(create_fake(fabric, ranks.heap_of_rank, options, service)) {
    connect_all(endpoints, ranks);
  }

  /// A write of bytes at the same place of both ranks.
  Write write(Write::Kind kind, uint32_t peer, uint64_t offset, uint64_t bytes, uint32_t value,
              uint64_t id) const {
    const uint64_t address = ranks.address() + offset;
    return {.kind = kind,
            .peer = peer,
            .local_address = address,
            .remote_address = address,
            .bytes = bytes,
            .value = value,
            .id = id};
  }
  static Write flag(uint32_t peer, uint32_t flag, uint32_t value, uint64_t id) {
    return {.kind = Write::Kind::kFlag, .peer = peer, .flag = flag, .value = value, .id = id};
  }

  std::vector<Event> poll(uint32_t rank) {
    std::array<Event, 64> events;
    const size_t count = value_of(endpoints[rank]->poll(events));
    return {events.begin(), events.begin() + static_cast<std::ptrdiff_t>(count)};
  }
  /// All events of a rank until there are `count`; fewer if that takes too many polls.
  std::vector<Event> await(uint32_t rank, size_t count) {
    std::vector<Event> all;
    for (int polls = 0; polls < 100'000 && all.size() < count; ++polls) {
      for (const Event& e : poll(rank)) all.push_back(e);
    }
    EXPECT_EQ(all.size(), count);
    return all;
  }
  std::string failure(uint32_t rank) const { return endpoints[rank]->last_error(); }

  TestRanks ranks;
  FakeFabric fabric;
  std::vector<std::unique_ptr<Endpoint>> endpoints;
};

}  // namespace mkernel::test
