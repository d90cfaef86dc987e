// What goes wrong on a verbs network, and that it is told as what it is: of fake NICs, and of those
// that MKERNEL_TEST_VERBS names.
#include <gtest/gtest.h>

#include <chrono>
#include <functional>
#include <map>

#include "network/verbs/address.h"
#include "transport/verbs_ranks.h"

namespace mkernel::test {
namespace {

using Kind = Write::Kind;
using EventKind = Event::Kind;

struct Network {
  std::string name;
  std::function<std::vector<std::unique_ptr<Endpoint>>(std::span<SymmetricHeap* const>,
                                                       VerbsOptions)>
      create;
};

std::vector<Network> networks() {
  std::vector<Network> all{{"Fake", [](auto heaps, VerbsOptions options) {
                              FakeFabric fabric({.seed = base_seed() + 1});
                              return create_fake(fabric, heaps, options);
                            }}};
  if (const char* const names = std::getenv("MKERNEL_TEST_VERBS")) {
    const std::string first = std::string(names).substr(0, std::string(names).find(','));
    all.push_back({"System", [first](auto heaps, VerbsOptions options) {
                     return create_system(heaps, options,
                                          [first](uint32_t) { return std::vector{first}; });
                   }});
  }
  return all;
}

class VerbsFaults : public testing::TestWithParam<Network> {
 protected:
  void create(const VerbsOptions& options) {
    endpoints_ = GetParam().create(ranks_.heap_of_rank, options);
  }
  Write write(Kind kind, uint64_t id) const {
    return {.kind = kind,
            .peer = 1,
            .local_address = ranks_.address(),
            .remote_address = ranks_.address(),
            .bytes = kind == Kind::kFlag ? 0u : 64u,
            .id = id};
  }
  /// The ends of writes 0, 1, ... of rank 0.
  std::vector<EventKind> await(size_t count) {
    std::map<uint64_t, EventKind> ends;
    const auto deadline = std::chrono::steady_clock::now() + std::chrono::seconds(60);
    std::array<Event, 8> events;
    while (ends.size() < count && std::chrono::steady_clock::now() < deadline) {
      const size_t n = value_of(endpoints_[0]->poll(events));
      for (size_t i = 0; i < n; ++i) {
        EXPECT_TRUE(ends.emplace(events[i].id, events[i].kind).second) << "write ended twice";
      }
    }
    std::vector<EventKind> list;
    for (const auto& [id, kind] : ends) list.push_back(kind);
    return list;
  }
  void expect_failure(const std::string& words) {
    const std::string error = endpoints_[0]->last_error();
    EXPECT_NE(error.find(words), std::string::npos) << error;
    EXPECT_NE(error.find("rank 1"), std::string::npos) << error;
  }

  TestRanks ranks_{2, 4096};
  std::vector<std::unique_ptr<Endpoint>> endpoints_;
};

TEST_P(VerbsFaults, WriteToAPeerThatIsGoneFailsAndSoDoAllBehindIt) {
  create({.timeout = 12, .retry_count = 2});
  connect_all(endpoints_, ranks_);
  const std::array good{write(Kind::kData, 0)};
  ASSERT_TRUE(endpoints_[0]->post(good));
  EXPECT_EQ(await(1), std::vector{EventKind::kCompleted});
  EXPECT_EQ(endpoints_[0]->last_error(), "");
  ASSERT_TRUE(endpoints_[1]->close());
  const std::array writes{write(Kind::kData, 0), write(Kind::kFlag, 1), write(Kind::kData, 2)};
  ASSERT_TRUE(endpoints_[0]->post(writes));
  EXPECT_EQ(await(3), std::vector(3, EventKind::kFailed));
  expect_failure("retry");
  ASSERT_TRUE(endpoints_[0]->post(writes)) << "later ones are taken, and fail";
  EXPECT_EQ(await(3), std::vector(3, EventKind::kFailed));
  EXPECT_TRUE(endpoints_[0]->close());
}

TEST_P(VerbsFaults, WrongKeyFailsTheWriteButNotTheOneBeforeIt) {
  create({});
  connect_all(endpoints_, ranks_);
  const HeapRegion& region = *ranks_.regions[1];
  verbs::RegionKey key =
      value_of(verbs::decode_key(value_of(endpoints_[1]->export_region(region))));
  const std::array before{write(Kind::kData, 0), write(Kind::kFlag, 1)};
  ASSERT_TRUE(endpoints_[0]->post(before));
  key.rkeys[0] ^= 0x5500;
  ASSERT_TRUE(endpoints_[0]->import_region(1, region.address, region.bytes, encode(key)));
  const std::array after{write(Kind::kData, 2), write(Kind::kFlag, 3)};
  ASSERT_TRUE(endpoints_[0]->post(after));
  EXPECT_EQ(await(4), (std::vector{EventKind::kCompleted, EventKind::kCompleted, EventKind::kFailed,
                                   EventKind::kFailed}));
  expect_failure("remote access error");
}

TEST_P(VerbsFaults, ImmediateThatMeetsNoReceiveFailsAfterTheRetriesAskedFor) {
  create({.rnr_retry = 2, .depth = 16});
  connect_all(endpoints_, ranks_);
  std::vector<EventKind> ends;
  for (int i = 0; i < 2; ++i) {  // rank 1 never polls, and has room for 16
    std::vector<Write> writes;
    for (uint64_t id = 0; id < 16; ++id) writes.push_back(write(Kind::kDataImmediate, id));
    ASSERT_TRUE(endpoints_[0]->post(writes));
    ends = await(16);
    if (i == 0) {
      EXPECT_EQ(ends, std::vector(16, EventKind::kCompleted));
    }
  }
  EXPECT_EQ(ends, std::vector(16, EventKind::kFailed));
  expect_failure("RNR");
}

TEST_P(VerbsFaults, FullQueueIsRefusedAndEmptiesAgain) {
  create({.depth = 4});
  connect_all(endpoints_, ranks_);
  std::vector<Write> writes;
  for (uint64_t id = 0; id < 5; ++id) writes.push_back(write(Kind::kData, id));
  EXPECT_EQ(endpoints_[0]->post(writes).code(), Code::kUnavailable);
  writes.pop_back();
  for (int i = 0; i < 3; ++i) {
    ASSERT_TRUE(endpoints_[0]->post(writes));
    EXPECT_EQ(await(4), std::vector(4, EventKind::kCompleted));
  }
}

INSTANTIATE_TEST_SUITE_P(All, VerbsFaults, testing::ValuesIn(networks()),
                         [](const auto& test) { return test.param.name; });

// --- Only where the fabric does as it is told ---

TEST(VerbsFabric, InjectedErrorIsToldInItsOwnWordsAndIsNoCompletion) {
  for (const char* const error : {"transport retry counter exceeded", "RNR retry counter exceeded",
                                  "remote access error", "remote operation error"}) {
    VerbsRanks v(2);
    v.fabric.fail_request(2, error);
    std::vector<Write> writes;
    for (uint32_t i = 0; i < 3; ++i) {
      writes.push_back(v.write(Kind::kData, 1, 0, 64, 0, 2 * i));
      writes.push_back(VerbsRanks::flag(1, i, 1, 2 * i + 1));
    }
    ASSERT_TRUE(v.endpoints[0]->post(writes));
    const std::vector<Event> events = v.await(0, 6);
    for (const Event& e : events) {
      EXPECT_EQ(e.kind, e.id < 2 ? EventKind::kCompleted : EventKind::kFailed) << e.id;
    }
    EXPECT_NE(v.failure(0).find(error), std::string::npos) << v.failure(0);
    EXPECT_EQ(*v.ranks.flag(1, 1), 0u);
    EXPECT_EQ(*v.ranks.flag(1, 2), 0u);
  }
}

TEST(VerbsFabric, KilledPeerFailsItsWritesOnAllRailsAndNobodyElses) {
  FakeConfig config{.devices = fake_devices(2)};
  VerbsRanks v(3, config, {.devices = {"fake0", "fake1"}, .qps_per_peer = 2, .split_bytes = 256});
  v.fabric.kill(2);
  std::vector<Write> writes;
  for (uint32_t i = 0; i < 20; ++i) {
    writes.push_back(v.write(Kind::kData, 1 + i % 2, 0, 4096, 0, 2 * i));
    writes.push_back(VerbsRanks::flag(1 + i % 2, i, 1, 2 * i + 1));
  }
  ASSERT_TRUE(v.endpoints[0]->post(writes));
  for (const Event& e : v.await(0, 40)) {
    EXPECT_EQ(e.kind, e.peer == 1 ? EventKind::kCompleted : EventKind::kFailed);
  }
  for (uint32_t i = 0; i < 20; ++i) EXPECT_EQ(*v.ranks.flag(2, i), 0u) << "no flag without data";
}

TEST(VerbsFabric, CloseWithARailThatStandsStillEndsAtItsLimit) {
  VerbsRanks v(2);
  v.fabric.hold("fake0", true);
  const Write w = v.write(Kind::kData, 1, 0, 64, 0, 0);
  ASSERT_TRUE(v.endpoints[0]->post({&w, 1}));
  EXPECT_TRUE(v.endpoints[0]->close());
  EXPECT_TRUE(v.fabric.registrations().size() < 6) << "its memory is still registered";
}

// --- Set-up ---

std::vector<std::string> addresses_of(const std::vector<std::unique_ptr<Endpoint>>& endpoints) {
  std::vector<std::string> addresses;
  for (const auto& endpoint : endpoints) addresses.push_back(endpoint->address());
  return addresses;
}

TEST(VerbsSetUp, AddressOfAnotherTransportOrRankOrLengthIsRefused) {
  const TestRanks ranks(2, 64);
  FakeFabric fabric;
  const auto endpoints = create_fake(fabric, ranks.heap_of_rank);
  FakeFabric efa_fabric({.devices = {{.link_layer = verbs::LinkLayer::kEfa}}});
  const auto others = create_fake(efa_fabric, ranks.heap_of_rank, {}, kSrd);
  FakeFabric rails_fabric({.devices = fake_devices(2)});
  const auto more_rails =
      create_fake(rails_fabric, ranks.heap_of_rank, {.devices = {"fake0", "fake1"}});
  const std::string right = endpoints[1]->address();
  for (const auto& [what, address] : std::map<std::string, std::string>{
           {"loopback", "loopback"},
           {"efa", others[1]->address()},
           {"two devices", more_rails[1]->address()},
           {"own", endpoints[0]->address()},
           {"short", right.substr(0, right.size() - 1)},
           {"long", right + "x"},
           {"version", "mkernel-verbs-address-2" + right.substr(23)}}) {
    const std::vector<std::string> addresses{endpoints[0]->address(), address};
    const Status status = endpoints[0]->connect(addresses);
    EXPECT_EQ(status.code(), Code::kInvalidArgument) << what;
    EXPECT_NE(status.message().find("rank 0"), std::string::npos) << status.message();
  }
  EXPECT_TRUE(endpoints[0]->connect(addresses_of(endpoints)));
  EXPECT_EQ(endpoints[0]->connect(addresses_of(endpoints)).code(), Code::kInvalidArgument);
}

TEST(VerbsSetUp, EveryCutOfAnAddressOrKeyIsRefused) {
  const VerbsRanks v(2);
  const std::string address = v.endpoints[0]->address();
  const std::string key = value_of(v.endpoints[0]->export_region(*v.ranks.regions[0]));
  for (size_t n = 0; n < address.size(); ++n) {
    EXPECT_FALSE(verbs::decode_address(address.substr(0, n))) << n;
  }
  for (size_t n = 0; n < key.size(); ++n) {
    const Status status = v.endpoints[1]->import_region(0, 0, 0, key.substr(0, n));
    EXPECT_EQ(status.code(), Code::kInvalidArgument) << n;
  }
}

TEST(VerbsSetUp, RankWithoutAnAddressHasNoRoute) {
  const TestRanks ranks(3, 64);
  FakeFabric fabric;
  const auto endpoints = create_fake(fabric, ranks.heap_of_rank);
  std::vector<std::string> addresses = addresses_of(endpoints);
  addresses[2].clear();
  ASSERT_TRUE(endpoints[0]->connect(addresses));
  const Write w = VerbsRanks::flag(2, 0, 1, 0);
  const Status status = endpoints[0]->post({&w, 1});
  EXPECT_EQ(status.code(), Code::kInvalidArgument);
  EXPECT_NE(status.message().find("rank 2"), std::string::npos);
}

TEST(VerbsSetUp, ForgottenRegionIsUnregisteredAndOutOfBounds) {
  VerbsRanks v(2);
  const size_t before = v.fabric.registrations().size();
  const Write w = v.write(Kind::kData, 1, 0, 64, 0, 0);
  v.endpoints[0]->forget_region(v.ranks.address());
  EXPECT_EQ(v.fabric.registrations().size(), before - 1);
  EXPECT_EQ(v.endpoints[0]->post({&w, 1}).code(), Code::kInvalidArgument);
}

}  // namespace
}  // namespace mkernel::test
