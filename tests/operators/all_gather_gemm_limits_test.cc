// Plans at and beyond the limits of work space, flags, messages and tiles.
#include <gtest/gtest.h>
#include <sys/resource.h>
#include <unistd.h>

#include <chrono>
#include <cstdlib>
#include <fstream>
#include <string>
#include <utility>
#include <vector>

#include <mkernel/operators.h>

#include "core/flag_word.h"
#include "tests/operators/plan_on_ranks.h"

namespace mkernel::test {
namespace {

constexpr int64_t kMostRows = int64_t{1} << 30;
using std::chrono::seconds;

/// Two slots of work space on every machine.
constexpr AllGatherGemmTuning kTwoSlots{.push = Push::kBlocks};

Status create_all(Ranks& ranks, const AllGatherGemmShape& shape,
                  const AllGatherGemmTuning& tuning = {}) {
  std::vector<AllGatherGemm> plans;
  for (const Context& context : ranks.contexts) {
    auto plan = AllGatherGemm::create(context, shape, tuning);
    if (!plan) return plan.status();
    plans.push_back(std::move(plan.value()));
  }
  return Status::ok();
}

/// Refusing held the lock that giving work space back takes, so that create() never returned.
TEST(PlanLimits, WorkSpaceBeyondTheLimitIsRefusedOnEveryRankAndTheNextPlanWorks) {
  expect_ends(seconds(60), [] {
    ClusterOptions options = cluster_of(2, 2);
    options.heap_bytes_limit = 100'000;
    Ranks ranks(options);
    for (int i = 0; i < 3; ++i) {
      for (const Context& context : ranks.contexts) {
        const auto plan = AllGatherGemm::create(context, {.m = 4000, .n = 8, .k = 64}, kTwoSlots);
        ASSERT_FALSE(plan);
        expect_error(plan.status(), Code::kInvalidArgument,
                     {"1024000 bytes", "heap_bytes_limit = 100000", "rank"});
      }
      PlanOnRanks(ranks, {.m = 100, .n = 8, .k = 16}).expect_right();
    }
  });
}

TEST(PlanLimits, WorkSpaceUpToTheLimitIsGivenAndComesBack) {
  expect_ends(seconds(60), [] {
    const AllGatherGemmShape shape{.m = 64, .n = 8, .k = 16};  // two slots of 64 * 32 bytes
    ClusterOptions options = cluster_of(1, 2);
    options.heap_bytes_limit = 4096;
    Ranks ranks(options);
    for (int i = 0; i < 3; ++i) {
      PlanOnRanks plan(ranks, shape, kTwoSlots);
      EXPECT_EQ(plan[0].plan().workspace_bytes(), 4096u);
      expect_error(create_all(ranks, {.m = 1, .n = 8, .k = 1}), Code::kInvalidArgument,
                   {"heap_bytes_limit = 4096"});
      plan.expect_right();
    }
    options.heap_bytes_limit = 4095;
    Ranks tight(options);
    EXPECT_FALSE(create_all(tight, shape, kTwoSlots));
  });
}

TEST(PlanLimits, NoWorkSpaceIsNeededByOneRank) {
  ClusterOptions options = cluster_of(1, 1);
  options.heap_bytes_limit = 0;
  Ranks ranks(options);
  PlanOnRanks plan(ranks, {.m = 50, .n = 40, .k = 30});
  EXPECT_EQ(plan[0].plan().workspace_bytes(), 0u);
  plan.expect_right();
}

TEST(PlanLimits, TooManyFlagsAreRefusedWithAWayOut) {
  Ranks ranks(cluster_of(1, 4));
  expect_error(create_all(ranks, {.m = 2'000'000, .n = 8, .k = 1}, {.chunk_rows = 16}),
               Code::kInvalidArgument,
               {"flags = ", "at most " + std::to_string(kMaxFlags), "chunk_rows"});
}

/// Its region was taken on rank 0 and its flags were not, so that no later plan had the same
/// address on all ranks.
TEST(PlanLimits, APlanRefusedForFlagsDoesNotBreakLaterOnes) {
  Ranks ranks(cluster_of(1, 2));
  const AllGatherGemmShape shape{.m = 160'000, .n = 1, .k = 1};  // of 2 * 2 * 5000 flags
  const AllGatherGemmTuning tuning{.chunk_rows = 16};
  std::vector<std::vector<AllGatherGemm>> alive;
  Status last;
  for (int i = 0; i < 8 && last; ++i) {
    alive.emplace_back();
    for (const Context& context : ranks.contexts) {
      auto plan = AllGatherGemm::create(context, shape, tuning);
      last = plan.status();
      if (!plan) break;
      alive.back().push_back(std::move(plan.value()));
    }
  }
  expect_error(last, Code::kInvalidArgument, {"flags"});
  alive.clear();
  PlanOnRanks(ranks, {.m = 50, .n = 8, .k = 8}).expect_right();
}

/// Bytes of address space that the process uses.
uint64_t mapped_bytes() {
  uint64_t pages = 0;
  std::ifstream("/proc/self/statm") >> pages;
  return pages * static_cast<uint64_t>(sysconf(_SC_PAGESIZE));
}

/// Exit code of a process in which rank 1 alone finds its device full.
int use_after_full_device() {
  Ranks ranks(cluster_of(1, 2));
  const AllGatherGemmShape two_gib{.m = 512, .n = 1, .k = 1 << 20};
  rlimit limit{};
  if (getrlimit(RLIMIT_AS, &limit) != 0) return 2;
  const rlimit before = limit;
  limit.rlim_cur = mapped_bytes() + (uint64_t{3} << 30);
  if (setrlimit(RLIMIT_AS, &limit) != 0) return 3;
  const Status refused = create_all(ranks, two_gib, kTwoSlots);
  if (setrlimit(RLIMIT_AS, &before) != 0) return 4;
  if (refused.code() != Code::kUnavailable) return 5;
  return create_all(ranks, {.m = 50, .n = 8, .k = 8}) ? 0 : 6;
}

/// A device may be full on one rank only. Its peers had counted the region already.
TEST(PlanLimits, AFullDeviceOnOneRankDoesNotBreakLaterPlans) {
  if (kSanitizer) GTEST_SKIP() << "sanitizers need address space of their own";
  EXPECT_EXIT(std::_Exit(use_after_full_device()), ::testing::ExitedWithCode(0), "")
      << "6: a later plan was refused";
}

/// 0 lets the plan choose: it must not choose what it then refuses.
TEST(PlanLimits, TheChosenChunksNeverNeedTooManyFlags) {
  for (const auto& [nodes, gpus] : {std::pair{1, 2}, {2, 1}}) {
    Ranks ranks(cluster_of(nodes, gpus));
    expect_ok(create_all(ranks, {.m = 100'000'000, .n = 1, .k = 1}));
  }
}

/// One rank sends nothing, so neither flags nor the size of messages limit it.
TEST(PlanLimits, OneRankTakesTheLargestSizes) {
  Ranks ranks(cluster_of(1, 1));
  expect_ok(create_all(ranks, {.m = kMostRows, .n = 1, .k = 1}));
  expect_ok(create_all(ranks, {.m = 1, .n = 1, .k = kMostRows}));
  expect_ok(create_all(ranks, {.m = 1, .n = kMostRows, .k = 1}));
  expect_ok(create_all(ranks, {.m = kMostRows, .n = 1, .k = kMostRows}));
}

TEST(PlanLimits, MessagesOfFourGiBAreRefused) {
  ClusterOptions options = cluster_of(2, 1);
  options.heap_bytes_limit = uint64_t{1} << 44;
  Ranks ranks(options);
  // A row of 2^18 bytes: 2^14 rows are exactly 4 GiB.
  const AllGatherGemmShape shape{.m = 1 << 16, .n = 1, .k = 1 << 17};
  expect_error(create_all(ranks, shape, {.chunk_rows = 1 << 14}), Code::kInvalidArgument,
               {"bytes per message between nodes = 4294967296", "below 4 GiB", "chunk_rows"});
  expect_error(create_all(ranks, shape, {.chunk_rows = 1 << 15}), Code::kInvalidArgument,
               {"bytes per message between nodes = 8589934592"});
}

TEST(PlanLimits, TooManyTilesAreRefused) {
  Ranks ranks(cluster_of(1, 2));
  for (const int64_t n : {int64_t{1} << 12, int64_t{1} << 20, kMostRows})
    expect_error(create_all(ranks, {.m = kMostRows, .n = n, .k = 1}, {.chunk_rows = 1 << 26}),
                 Code::kInvalidArgument, {"output tiles = ", "2^32"});
}

TEST(PlanLimits, SizesWhoseProductIsBeyond64BitsAreRefusedByTheHeap) {
  expect_ends(seconds(60), [] {
    Ranks ranks(cluster_of(1, 16));
    // 2^30 rows of 2^27 bytes in two slots are 2^58 bytes.
    expect_error(create_all(ranks, {.m = kMostRows, .n = 1, .k = 1 << 26}, {.chunk_rows = 16}),
                 Code::kInvalidArgument, {"flags"});
    const AllGatherGemmShape wide{.m = 1600, .n = 1, .k = 1 << 26};
    expect_error(create_all(ranks, wide, {.chunk_rows = 16, .push = Push::kBlocks}),
                 Code::kInvalidArgument, {"429496729600 bytes", "heap_bytes_limit"});
  });
}

}  // namespace
}  // namespace mkernel::test
