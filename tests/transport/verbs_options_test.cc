// What can be set about a verbs network: tables of options, GIDs and ports.
#include <gtest/gtest.h>

#include "network/verbs/gid.h"
#include "network/verbs/settings.h"
#include "transport/verbs_ranks.h"

namespace mkernel::test {
namespace {

using verbs::GidEntry;
using verbs::GidType;
using verbs::LinkLayer;
using verbs::Service;

/// Makes an endpoint of rank 0 of 2, and keeps what was logged.
struct Maker {
  Result<std::unique_ptr<Endpoint>> create(const FakeConfig& config, const VerbsOptions& options,
                                           Service service = Service::kConnected) {
    FakeFabric fabric(config);
    return verbs::create_endpoint(
        fabric.api(0), {.service = service,
                        .options = options,
                        .heap = ranks.heap_of_rank[0],
                        .rank = 0,
                        .num_ranks = 2,
                        .limit_ns = 1'000'000,
                        .log = [this](const std::string& line) { lines.push_back(line); }});
  }
  TestRanks ranks{2, 64};
  std::vector<std::string> lines;
};

void expect_refused(const Status& status, Code code, const std::string& words) {
  EXPECT_EQ(status.code(), code) << status.message();
  EXPECT_NE(status.message().find(words), std::string::npos)
      << "\"" << status.message() << "\" does not say " << words;
}

TEST(VerbsOptions, ValueOutOfRangeIsRefusedByItsName) {
  const std::vector<std::pair<std::string, VerbsOptions>> cases = {
      {"port = 0: 1 to 255", {.port = 0}},
      {"gid_index = -2: 0 to 65535", {.gid_index = -2}},
      {"traffic_class = 256", {.traffic_class = 256}},
      {"service_level = 16", {.service_level = 16}},
      {"mtu = 5000", {.mtu = 5000}},
      {"mtu = 1500", {.mtu = 1500}},
      {"timeout = 0: 1 to 31", {.timeout = 0}},
      {"retry_count = 8: 0 to 7", {.retry_count = 8}},
      {"rnr_retry = -3", {.rnr_retry = -3}},
      {"qps_per_peer = 0", {.qps_per_peer = 0}},
      {"qps_per_peer = 17", {.qps_per_peer = 17}},
      {"depth = -1", {.depth = -1}},
      {"split_bytes = 0", {.split_bytes = 0}},
      {"9 devices: at most 8", {.devices = {"a", "b", "c", "d", "e", "f", "g", "h", "i"}}},
      {"a is there twice", {.devices = {"a", "a"}}},
  };
  for (const auto& [words, options] : cases) {
    expect_refused(verbs::settings_of(options, Service::kConnected).status(),
                   Code::kInvalidArgument, words);
  }
  EXPECT_TRUE(verbs::settings_of({}, Service::kConnected));
}

TEST(VerbsOptions, UnsetOnesHaveTheValuesThatTheHeaderNames) {
  const verbs::Settings s = value_of(verbs::settings_of({}, Service::kConnected));
  EXPECT_EQ(s.timeout, 14u);
  EXPECT_EQ(s.retry_count, 6u);
  EXPECT_EQ(s.rnr_retry, 7u);
  EXPECT_EQ(s.traffic_class, 0u);
  EXPECT_EQ(s.service_level, 0u);
  EXPECT_FALSE(s.gid_index || s.mtu_bytes || s.depth || s.relaxed_ordering);
}

TEST(VerbsOptions, WhatALinkDoesNotKnowIsRefusedByItsName) {
  struct Case {
    LinkLayer link_layer;
    std::string refused;  // empty: taken
    VerbsOptions options;
  };
  const std::vector<Case> cases = {
      {LinkLayer::kEthernet, "", {.traffic_class = 104, .service_level = 7, .mtu = 1024}},
      {LinkLayer::kEthernet, "service_level = 8", {.service_level = 8}},
      {LinkLayer::kInfiniband, "", {.service_level = 15, .timeout = 20}},
      {LinkLayer::kInfiniband, "traffic_class = 1", {.traffic_class = 1}},
      {LinkLayer::kInfiniband, "", {.gid_index = 0, .traffic_class = 1}},
      {LinkLayer::kEfa, "", {.rnr_retry = 3, .qps_per_peer = 2, .depth = 64}},
      {LinkLayer::kEfa, "gid_index = 0", {.gid_index = 0}},
      {LinkLayer::kEfa, "traffic_class = 0", {.traffic_class = 0}},
      {LinkLayer::kEfa, "service_level = 0", {.service_level = 0}},
      {LinkLayer::kEfa, "mtu = 4096", {.mtu = 4096}},
      {LinkLayer::kEfa, "timeout = 14", {.timeout = 14}},
      {LinkLayer::kEfa, "retry_count = 7", {.retry_count = 7}},
  };
  for (const Case& c : cases) {
    const FakeConfig config{.devices = {{.link_layer = c.link_layer}}};
    const auto service = c.link_layer == LinkLayer::kEfa ? kSrd : Service::kConnected;
    const Status status = Maker().create(config, c.options, service).status();
    if (c.refused.empty()) {
      EXPECT_TRUE(status) << status.message();
    } else {
      expect_refused(status, Code::kInvalidArgument, c.refused);
      EXPECT_NE(status.message().find("fake0"), std::string::npos) << status.message();
    }
  }
}

TEST(VerbsOptions, MoreThanTheDeviceHasIsRefused) {
  const FakeDevice small{.max_depth = 128, .mtu_bytes = 1024};
  const FakeConfig config{.devices = {small}};
  expect_refused(Maker().create(config, {.depth = 129}).status(), Code::kInvalidArgument,
                 "depth = 129: device fake0 holds 128");
  expect_refused(Maker().create(config, {.mtu = 2048}).status(), Code::kInvalidArgument,
                 "mtu = 2048: device fake0 has 1024");
  expect_refused(Maker().create(config, {.gid_index = 9}).status(), Code::kInvalidArgument,
                 "gid_index = 9");
  const FakeConfig few{.devices = {{.max_queue_pairs = 3}}};
  expect_refused(Maker().create(few, {.qps_per_peer = 4}).status(), Code::kUnavailable,
                 "4 queue pairs: device fake0 has 3");
}

// --- GIDs ---

verbs::Gid gid_of(std::initializer_list<uint8_t> first, uint8_t last = 1) {
  verbs::Gid gid{};
  std::copy(first.begin(), first.end(), gid.begin());
  gid[15] = last;
  return gid;
}
const GidEntry kLinkLocalV1{gid_of({0xfe, 0x80}), GidType::kRoceV1};
const GidEntry kLinkLocalV2{gid_of({0xfe, 0x80}), GidType::kRoceV2};
const GidEntry kRoutedV2{gid_of({0x20, 0x01}), GidType::kRoceV2};
const GidEntry kIpv4V1{gid_of({0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff, 10}), GidType::kRoceV1};
const GidEntry kIpv4V2{gid_of({0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff, 10}), GidType::kRoceV2};

TEST(VerbsGid, BestEntryOfATableIsFound) {
  struct Case {
    std::vector<std::optional<GidEntry>> table;
    std::optional<uint32_t> chosen;
    std::set<uint32_t> unreadable = {};
  };
  const std::vector<Case> cases = {
      {{kLinkLocalV1, kLinkLocalV2, kIpv4V1, kIpv4V2}, 3},
      {{kIpv4V2, kIpv4V2}, 0},
      {{kLinkLocalV1, kLinkLocalV2, std::nullopt, kRoutedV2}, 3},
      {{kLinkLocalV1, kLinkLocalV2}, 1},
      {{std::nullopt, std::nullopt, kIpv4V2}, 2},
      {{kLinkLocalV1, kIpv4V1}, std::nullopt},
      {{std::nullopt}, std::nullopt},
      {{kIpv4V2, kLinkLocalV2, kIpv4V2}, 2, {0}},
      {{kIpv4V2}, std::nullopt, {0}},
  };
  for (size_t i = 0; i < cases.size(); ++i) {
    SCOPED_TRACE(i);
    FakeFabric fabric(
        {.devices = {{.gids = cases[i].table, .unreadable_gids = cases[i].unreadable}}});
    const auto device = value_of(fabric.api(0)->open("fake0"));
    const verbs::PortInfo port = value_of(device->port(1));
    std::vector<std::string> lines;
    auto chosen = verbs::choose_gid(*device, "fake0", 1, port, std::nullopt,
                                    [&](const std::string& line) { lines.push_back(line); });
    EXPECT_EQ(lines.size(), cases[i].unreadable.size());
    if (cases[i].chosen) {
      EXPECT_EQ(chosen->index, *cases[i].chosen);
    } else {
      expect_refused(chosen.status(), Code::kUnavailable, "device fake0 port 1 has no usable GID");
    }
  }
}

TEST(VerbsGid, EntryThatIsAskedForIsTakenWhateverItIsUnlessItIsEmpty) {
  const FakeConfig config{.devices = {{.gids = {kIpv4V1, std::nullopt}}}};
  EXPECT_TRUE(Maker().create(config, {.gid_index = 0}));
  expect_refused(Maker().create(config, {.gid_index = 1}).status(), Code::kUnavailable,
                 "gid_index = 1: device fake0 port 1 has nothing there");
}

// --- Devices ---

TEST(VerbsDevices, FirstUsableOneIsTakenAndTheOthersAreLogged) {
  std::vector<FakeDevice> devices = fake_devices(4);
  devices[0].is_active = false;
  devices[1].gids = {kIpv4V1};
  devices[2].link_layer = LinkLayer::kEfa;
  Maker maker;
  EXPECT_TRUE(maker.create({.devices = devices}, {}));
  ASSERT_EQ(maker.lines.size(), 3u);
  EXPECT_NE(maker.lines[0].find("fake0 skipped: verbs: device fake0 port 1 is DOWN"),
            std::string::npos)
      << maker.lines[0];
  EXPECT_NE(maker.lines[1].find("no usable GID"), std::string::npos) << maker.lines[1];
  EXPECT_NE(maker.lines[2].find("EFA"), std::string::npos) << maker.lines[2];
  devices.pop_back();
  expect_refused(maker.create({.devices = devices}, {}).status(), Code::kUnavailable,
                 "no usable device among 3");
}

TEST(VerbsDevices, OneThatIsNamedIsNotReplaced) {
  std::vector<FakeDevice> devices = fake_devices(2);
  devices[0].is_active = false;
  expect_refused(Maker().create({.devices = devices}, {.devices = {"fake0"}}).status(),
                 Code::kUnavailable, "device fake0 port 1 is DOWN");
  expect_refused(Maker().create({.devices = devices}, {.devices = {"fake7"}}).status(),
                 Code::kUnavailable, "no device fake7");
  devices[0] = {.name = "fake0", .link_layer = LinkLayer::kInfiniband};
  expect_refused(Maker().create({.devices = devices}, {.devices = {"fake0", "fake1"}}).status(),
                 Code::kInvalidArgument, "different link layers");
}

TEST(VerbsDevices, EfaTakesEfaDevicesThatCanWriteAndVerbsTakesNone) {
  const FakeConfig efa{.devices = {{.link_layer = LinkLayer::kEfa}}};
  const FakeConfig old_efa{.devices = {{.link_layer = LinkLayer::kEfa, .can_write = false}}};
  EXPECT_TRUE(Maker().create(efa, {.devices = {"fake0"}}, kSrd));
  expect_refused(Maker().create(efa, {.devices = {"fake0"}}).status(), Code::kUnsupported,
                 "device fake0 is EFA");
  expect_refused(Maker().create(old_efa, {.devices = {"fake0"}}, kSrd).status(), Code::kUnsupported,
                 "cannot do RDMA write");
  expect_refused(Maker().create({}, {.devices = {"fake0"}}, kSrd).status(), Code::kUnsupported,
                 "fake0 is no EFA device");
}

TEST(VerbsDevices, OfTheSystemAreThereOrItIsSaidWhyNot) {
  TestRanks ranks(1, 64);
  const VerbsOptions options{.devices = {"no-such-device"}};
  for (const auto create : {create_verbs, create_efa}) {
    const Status status = create(options, *ranks.heap_of_rank[0], 0, 1, 1'000'000, {}).status();
    EXPECT_TRUE(status.code() == Code::kUnavailable || status.code() == Code::kUnsupported);
    EXPECT_FALSE(status.message().empty());
  }
}

}  // namespace
}  // namespace mkernel::test
