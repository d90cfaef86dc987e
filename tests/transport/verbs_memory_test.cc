// How NICs reach memory that is not the host's, and that bytes arrive in each of the ways.
#include <fcntl.h>
#include <gtest/gtest.h>

#include <array>
#include <set>

#include "memory/nic_writes.h"
#include "network/arrival.h"
#include "network/verbs/nic_path.h"
#include "transport/slow_memory.h"
#include "transport/transports.h"

namespace mkernel::test {
namespace {

using Kind = Write::Kind;

/// Memory as of a GPU: with dma-bufs if the driver has them, of a platform that orders or does not.
class GpuLikeMemory final : public SlowMemory {
 public:
  GpuLikeMemory(bool has_dmabuf, int ordering)
      : SlowMemory(3), has_dmabuf_(has_dmabuf), ordering_(ordering) {}
  Result<void*> allocate(uint64_t bytes) override { return note(SlowMemory::allocate(bytes)); }
  Result<void*> allocate_shared(uint64_t bytes) override {
    return note(SlowMemory::allocate_shared(bytes));
  }
  Result<DmaBuf> export_dmabuf(void*, uint64_t) override {
    if (!has_dmabuf_) return Status(Code::kInternal, "driver: not supported");
    return DmaBuf{.descriptor = open("/dev/null", O_RDONLY)};
  }
  bool orders_nic_writes() const override { return mkernel::orders_nic_writes(ordering_); }
  bool owns(const void* p) const { return blocks_.contains(p); }

 private:
  Result<void*> note(Result<void*> p) {
    if (p) blocks_.insert(*p);
    return p;
  }
  const bool has_dmabuf_;
  const int ordering_;
  std::set<const void*> blocks_;
};

struct Case {
  std::string name;
  bool driver_has_dmabuf, nic_takes_dmabuf, has_peermem;
  int ordering;
  Staging staging;
  std::string path;  // as it is reported
  bool in_order;
};

class VerbsMemory : public testing::TestWithParam<Case> {
 protected:
  VerbsMemory()
      : memory_(new GpuLikeMemory(GetParam().driver_has_dmabuf, GetParam().ordering)),
        ranks_(2, 64 << 10, 64, 0, std::unique_ptr<DeviceMemory>(memory_)),
        fabric_({.devices = {{.takes_dmabuf = GetParam().nic_takes_dmabuf,
                              .takes_foreign = GetParam().has_peermem}},
                 .is_foreign = [m = memory_](const void* p) { return m->owns(p); }}) {}

  GpuLikeMemory* const memory_;
  TestRanks ranks_;
  FakeFabric fabric_;
};

TEST_P(VerbsMemory, IsReachedInTheNearestWayThatWorksAndTheReportSaysWhyNotNearer) {
  const VerbsOptions options{.staging = GetParam().staging};
  const std::string path = value_of(
      verbs::describe_nic_path(fabric_.api(0), verbs::Service::kConnected, options, *memory_));
  EXPECT_EQ(path, GetParam().path);

  const auto endpoints = create_fake(fabric_, ranks_.heap_of_rank, options);
  connect_all(endpoints, ranks_);
  EXPECT_EQ(endpoints[0]->traits().in_order, GetParam().in_order);
  fill_pattern(ranks_.data(0), 40'000, 7);
  const ArrivalMethod method = arrival_method(endpoints[0]->traits());
  const ChunkWrites chunk = writes_of_chunk(method, {.peer = 1,
                                                     .local_address = ranks_.address(),
                                                     .remote_address = ranks_.address(),
                                                     .bytes = 40'000,
                                                     .flag = 5,
                                                     .value = 1});
  ASSERT_TRUE(endpoints[0]->post({chunk.writes.data(), chunk.count}));
  std::array<Event, 4> events;
  for (uint32_t completed = 0, arrived = 0, polls = 0;
       completed < chunk.count || arrived + chunk.count < 2; ++polls) {
    ASSERT_LT(polls, 1'000'000u);
    completed += static_cast<uint32_t>(value_of(endpoints[0]->poll(events)));
    arrived += static_cast<uint32_t>(value_of(endpoints[1]->poll(events)));
  }
  EXPECT_TRUE(has_pattern(ranks_.data(1), 40'000, 7));
  EXPECT_EQ(*ranks_.flag(1, 5), method == ArrivalMethod::kFlagBehindData ? 1u : 0u);
  for (const auto& endpoint : endpoints) EXPECT_TRUE(endpoint->close());
}

constexpr const char* kNoDmabuf = "dma-buf: driver: not supported";
constexpr const char* kNoDmabufNic = "dma-buf: fake reg_dmabuf_mr: Operation not supported";
constexpr const char* kNoPeermem = "nvidia-peermem: fake reg_mr: Bad address";
constexpr const char* kNoOrder = "the platform does not order a NIC's writes for the GPU";

std::vector<Case> cases() {
  const auto bounce = [](const std::string& why) { return "bounce buffers (" + why + ")"; };
  const std::string none = bounce(std::string(kNoDmabuf) + "; " + kNoPeermem);
  constexpr auto kAuto = Staging::kAuto;
  return {
      {"Dmabuf", true, true, false, 100, kAuto, "dma-buf", true},
      {"DmabufBeforePeermem", true, true, true, 200, kAuto, "dma-buf", true},
      {"PeermemForAnOldDriver", false, true, true, 100, kAuto,
       std::string("nvidia-peermem (") + kNoDmabuf + ")", true},
      {"PeermemForAnOldNic", true, false, true, 200, kAuto,
       std::string("nvidia-peermem (") + kNoDmabufNic + ")", true},
      {"Neither", false, true, false, 200, kAuto, none, false},
      {"NoOrder", true, true, true, 0, kAuto, bounce(kNoOrder), false},
      {"UnknownOrder", true, true, true, 50, kAuto, bounce(kNoOrder), false},
      {"AskedFor", true, true, true, 200, Staging::kAlways, bounce("asked for"), false},
  };
}

INSTANTIATE_TEST_SUITE_P(All, VerbsMemory, testing::ValuesIn(cases()),
                         [](const auto& test) { return test.param.name; });

TEST(VerbsMemoryOfTheHost, IsRegisteredAsItIs) {
  TestRanks ranks(2, 4096);
  FakeFabric fabric({.devices = {{.takes_dmabuf = true}}});
  EXPECT_EQ(value_of(verbs::describe_nic_path(fabric.api(0), verbs::Service::kConnected, {},
                                              *ranks.memory)),
            "host memory");
  const auto endpoints = create_fake(fabric, ranks.heap_of_rank);
  for (const FakeRegistration& r : fabric.registrations()) EXPECT_FALSE(r.by_dmabuf);
}

TEST(VerbsMemoryOfAGpu, FlagsAndDataAreBothRegisteredByDmabuf) {
  auto* const memory = new GpuLikeMemory(true, 200);
  TestRanks ranks(2, 4096, 64, 0, std::unique_ptr<DeviceMemory>(memory));
  FakeFabric fabric({.devices = {{.takes_dmabuf = true, .takes_foreign = false}},
                     .is_foreign = [=](const void* p) { return memory->owns(p); }});
  const auto endpoints = create_fake(fabric, ranks.heap_of_rank, {.relaxed_ordering = true});
  connect_all(endpoints, ranks);
  uint32_t num_by_dmabuf = 0;
  for (const FakeRegistration& r : fabric.registrations()) {
    num_by_dmabuf += r.by_dmabuf ? 1 : 0;
    const bool is_flags = r.address == reinterpret_cast<uint64_t>(ranks.flag(r.rank, 0));
    EXPECT_FALSE(is_flags && r.access.relaxed_ordering);
  }
  EXPECT_EQ(num_by_dmabuf, 4u);
}

}  // namespace
}  // namespace mkernel::test
