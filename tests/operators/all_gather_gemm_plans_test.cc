// Plans side by side, one after the other, and taken apart in every order.
#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <memory>
#include <random>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include <mkernel/operators.h>

#include "tests/operators/plan_on_ranks.h"

namespace mkernel::test {
namespace {

using std::chrono::seconds;

AllGatherGemmShape shape_of(int64_t m, int64_t n, int64_t k) { return {.m = m, .n = n, .k = k}; }

TEST(Plans, OfDifferentShapesWorkInTurns) {
  Ranks ranks(cluster_of(2, 2));
  std::vector<PlanOnRanks> plans;
  plans.emplace_back(ranks, shape_of(37, 24, 11));
  plans.emplace_back(ranks, shape_of(90, 40, 33), AllGatherGemmTuning{.chunk_rows = 16});
  plans.emplace_back(ranks, AllGatherGemmShape{.m = 5, .n = 3, .k = 1, .gather_a = true});
  plans.emplace_back(ranks, AllGatherGemmShape{.m = 64,
                                               .n = 9,
                                               .k = 70,
                                               .dtype = DType::kFp16,
                                               .b_layout = BLayout::kNK,
                                               .gather_a = true});
  plans.emplace_back(ranks, shape_of(0, 1, 1));
  for (int round = 0; round < 4; ++round) {
    for (PlanOnRanks& plan : plans) plan.fill(round);
    // All of them are enqueued before the first is waited for.
    for (PlanOnRanks& plan : plans) expect_ok(plan.launch());
    expect_ok(ranks.synchronize());
    for (PlanOnRanks& plan : plans) plan.verify();
    std::rotate(plans.begin(), plans.begin() + 1, plans.end());
  }
}

/// Every rank has a B of its own: of its own width and layout, and blocks and tiles as it likes.
TEST(Plans, MayDifferBetweenRanksInWhatIsEachRanksOwn) {
  Ranks ranks(cluster_of(2, 2));
  std::vector<RankPlan> plans;
  for (size_t r = 0; r < ranks.size(); ++r) {
    const auto i = static_cast<int>(r);
    const AllGatherGemmShape shape{
        .m = 75, .n = 1 + 30 * i, .k = 19, .b_layout = r % 2 == 0 ? BLayout::kKN : BLayout::kNK};
    plans.emplace_back(
        ranks.contexts[r], shape,
        AllGatherGemmTuning{
            .blocks = 1 + i, .comm_blocks = 1, .chunk_rows = 16, .tile_n = i % 2 == 0 ? 16 : 32});
  }
  for (int launch = 0; launch < 3; ++launch) {
    for (size_t r = 0; r < ranks.size(); ++r) expect_ok(plans[r].run(ranks.streams[r]));
    expect_ok(ranks.synchronize());
    for (RankPlan& plan : plans) plan.verify();
  }
}

TEST(Plans, TakeNarrowTilesWhereWideOnesLeaveBlocksIdle) {
  Ranks ranks(cluster_of(1, 1));
  struct Choice {
    AllGatherGemmShape shape;
    AllGatherGemmTuning tuning;
    std::string tiles;
  };
  // Of three blocks, if not told otherwise.
  for (const Choice& c :
       {Choice{shape_of(16, 32, 9), {}, "tiles 16x16: 1 x 0.55 waves (16x32: 1 x 1)"},
        {shape_of(48, 32, 9), {}, "tiles 16x32: 1 x 1 waves (16x16: 2 x 0.55)"},
        {shape_of(48, 32, 9), {.blocks = 6}, "tiles 16x16: 1 x 0.55 waves (16x32: 1 x 1)"},
        {shape_of(48, 32, 9), {.blocks = 6, .tile_n = 32}, "tiles 16x32: 1 x 1 waves"},
        {shape_of(0, 32, 9), {}, "tiles 16x32: 0 x 1 waves (16x16: 0 x 0.55)"}}) {
    PlanOnRanks plan(ranks, c.shape, c.tuning);
    const std::string text = plan[0].plan().describe();
    EXPECT_NE(text.find(c.tiles), std::string::npos) << "no \"" << c.tiles << "\" in: " << text;
    plan.expect_right();
  }
}

TEST(Plans, ThatDifferInWhatAllRanksShareAreRefusedAndCanBeMadeRight) {
  const AllGatherGemmShape shape = shape_of(64, 8, 8);
  std::vector<AllGatherGemmShape> others(5, shape);
  others[0].m = 65;
  others[1].k = 9;
  others[2].dtype = DType::kFp16;
  others[3].gather_a = true;
  for (size_t i = 0; i < others.size(); ++i) {
    const AllGatherGemmTuning other_tuning{.chunk_rows = i == 4 ? 32 : 0};
    Ranks ranks(cluster_of(1, 2));
    RankPlan first(ranks.contexts[0], shape, {});
    const auto refused = AllGatherGemm::create(ranks.contexts[1], others[i], other_tuning);
    ASSERT_FALSE(refused) << "difference " << i;
    expect_error(refused.status(), Code::kInvalidArgument,
                 {"rank 1", "plan 0", "m 64 k 8 bf16", "same plans in the same order"});
    RankPlan second(ranks.contexts[1], shape, {});
    expect_ok(first.run(ranks.streams[0]));
    expect_ok(second.run(ranks.streams[1]));
    expect_ok(ranks.synchronize());
    first.verify();
    second.verify();
  }
}

/// Pushes by copy engine need one slot and pushes by blocks two.
TEST(Plans, ThatDifferInWhoPushesAreRefused) {
  const AllGatherGemmShape shape = shape_of(64, 8, 8);
  Ranks ranks(cluster_of(1, 2));
  const auto first = AllGatherGemm::create(ranks.contexts[0], shape, {.push = Push::kBlocks});
  ASSERT_TRUE(first);
  const auto second = AllGatherGemm::create(ranks.contexts[1], shape, {.push = Push::kEngine});
  if (second.status().code() == Code::kUnsupported) GTEST_SKIP() << "no copy engines";
  expect_error(second.status(), Code::kInvalidArgument, {"rank 1", "plan 0"});
}

TEST(Plans, InAnotherOrderOnAnotherRankAreRefused) {
  Ranks ranks(cluster_of(1, 3));
  RankPlan a0(ranks.contexts[0], shape_of(64, 8, 8), {});
  RankPlan b0(ranks.contexts[0], shape_of(32, 8, 8), {});
  expect_error(AllGatherGemm::create(ranks.contexts[2], shape_of(32, 8, 8)).status(),
               Code::kInvalidArgument, {"rank 2", "plan 0", "m 32", "m 64"});
}

TEST(Plans, ThatNotAllRanksMadeAreTakenApartCleanly) {
  for (const int nodes : {1, 3}) {
    Ranks ranks(cluster_of(nodes, 2));
    RankPlan whole(ranks.contexts[0], shape_of(64, 8, 8), {});
    for (size_t r = 1; r < ranks.size(); ++r)
      RankPlan gone(ranks.contexts[r], shape_of(64, 8, 8), {});
    RankPlan half(ranks.contexts[1], shape_of(32, 8, 8), {});
  }
}

TEST(Plans, ComeAndGoAThousandTimes) {
  Ranks ranks(cluster_of(2, 2));
  PlanOnRanks lasting(ranks, shape_of(41, 10, 7));
  constexpr int kPlans = 1000 / kTimesFewer;
  uint64_t launches = 0;
  for (int i = 0; i < kPlans; ++i) {
    PlanOnRanks passing(
        ranks, AllGatherGemmShape{
                   .m = 1 + i % 50, .n = 1 + i % 40, .k = 1 + i % 9, .gather_a = i % 3 == 0});
    if (i % 4 != 0) continue;
    passing.expect_right();
    lasting.expect_right();
    launches += 2;
    ASSERT_FALSE(::testing::Test::HasFailure()) << "plan " << i;
  }
  for (Context& context : ranks.contexts)
    EXPECT_EQ(value_of(context.statistics()).launches, launches);
}

/// Ranks on threads of their own make, use and destroy plans in the same order, but not at the
/// same time: one rank's new plan meets the end of another rank's old one.
TEST(Plans, ComeAndGoOnAThreadPerRank) {
  for (const int nodes : {1, 2}) {
    Ranks ranks(cluster_of(nodes, 8 / nodes));
    std::vector<std::string> problem(ranks.size());
    {
      std::vector<std::jthread> threads;
      for (size_t r = 0; r < ranks.size(); ++r)
        threads.emplace_back([&, r] {
          for (int i = 0; i < 2000 / kTimesFewer && problem[r].empty(); ++i) {
            auto plan = AllGatherGemm::create(ranks.contexts[r], shape_of(1 + i % 40, 8, 8));
            if (!plan) problem[r] = plan.status().to_string();
          }
        });
    }
    for (const std::string& p : problem) EXPECT_EQ(p, "");
  }
}

TEST(Plans, RunOnAThreadPerRank) {
  Ranks ranks(cluster_of(2, 2));
  std::vector<std::jthread> threads;
  for (size_t r = 0; r < ranks.size(); ++r)
    threads.emplace_back([&, r] {
      RankPlan lasting(ranks.contexts[r], shape_of(70, 20, 13), {});
      for (int i = 0; i < 24 / kTimesFewer; ++i) {
        RankPlan passing(ranks.contexts[r], shape_of(20 + i, 9, 5), {});
        lasting.fill(i);
        expect_ok(lasting.run(ranks.streams[r]));
        expect_ok(passing.run(ranks.streams[r]));
        expect_ok(ranks.contexts[r].synchronize(ranks.streams[r].handle()));
        lasting.verify();
        passing.verify();
      }
    });
}

TEST(Plans, RunOnOneStreamAndThenOnAnother) {
  Ranks ranks(cluster_of(2, 2));
  std::vector<Stream> others;
  for (Context& context : ranks.contexts) others.push_back(value_of(context.create_stream()));
  PlanOnRanks plan(ranks, shape_of(50, 30, 20));
  for (int i = 0; i < 6; ++i) {
    plan.fill(i);
    const std::vector<Stream>& streams = i % 2 == 0 ? ranks.streams : others;
    expect_ok(plan.launch_on(streams));
    for (size_t r = 0; r < ranks.size(); ++r)
      expect_ok(ranks.contexts[r].synchronize(streams[r].handle()));
    plan.verify();
  }
}

TEST(Plans, OfTwoClustersRunAtOnce) {
  Ranks first(cluster_of(2, 2)), second(cluster_of(3, 1));
  PlanOnRanks one(first, shape_of(60, 20, 20)), two(second, shape_of(60, 20, 20));
  for (int i = 0; i < 4; ++i) {
    one.fill(i);
    two.fill(i + 1);
    expect_ok(one.launch());
    expect_ok(two.launch());
    expect_ok(second.synchronize());
    expect_ok(first.synchronize());
    one.verify();
    two.verify();
  }
}

TEST(Plans, WorkOnClustersOfUnusualShape) {
  // Both ways of pushing where there are two.
  for (const Push push : {Push::kAuto, Push::kBlocks})
    for (const auto& [nodes, gpus] : {std::pair{1, 16}, {16, 1}, {7, 3}, {1, 13}}) {
      Ranks ranks(cluster_of(nodes, gpus));
      for (const int64_t m : {int64_t{1}, int64_t{gpus}, int64_t{nodes * gpus} * 17 - 1})
        for (const auto& [n, k] : {std::pair{1, 1}, {1, 35}, {33, 1}}) {
          SCOPED_TRACE(std::to_string(nodes) + " x " + std::to_string(gpus) + ", m " +
                       std::to_string(m) + ", n " + std::to_string(n) + ", k " + std::to_string(k));
          PlanOnRanks(ranks, shape_of(m, n, k), {.blocks = 2, .chunk_rows = 16, .push = push})
              .expect_right();
        }
    }
}

TEST(Contexts, MoveWithTheirRank) {
  std::vector<Context> contexts = value_of(Context::create_virtual(cluster_of(1, 2)));
  Context moved = std::move(contexts[0]);
  EXPECT_EQ(moved.rank(), 0);
  contexts[0] = std::move(contexts[1]);
  EXPECT_EQ(contexts[0].rank(), 1);
  contexts[1] = std::move(moved);  // back into one that was moved from
  EXPECT_EQ(contexts[1].rank(), 0);
  contexts[1] = std::move(value_of(Context::create_virtual(cluster_of(1, 3)))[2]);
  EXPECT_EQ(contexts[1].rank(), 2);
  EXPECT_EQ(contexts[1].world_size(), 3);
}

TEST(Contexts, MovedBuffersStreamsAndPlansKeepWorking) {
  Ranks ranks(cluster_of(1, 2));
  PlanOnRanks plans(ranks, shape_of(30, 8, 8));
  PlanOnRanks other(ranks, shape_of(40, 8, 8));
  AllGatherGemm moved = std::move(plans[0].plan());
  plans[0].plan() = std::move(moved);
  Stream stream = std::move(ranks.streams[0]);
  ranks.streams[0] = std::move(stream);
  plans.expect_right();
  std::swap(plans, other);
  plans.expect_right();
  other.expect_right();

  Buffer one = value_of(ranks.contexts[0].allocate(16));
  void* const data = one.data();
  Buffer two = std::move(one);
  EXPECT_EQ(two.data(), data);
  EXPECT_EQ(one.data(), nullptr);
  one = value_of(ranks.contexts[1].allocate(0));
  EXPECT_NE(one.data(), nullptr);
  EXPECT_EQ(one.bytes(), 0u);
}

/// Everything there is, in one of all orders of destruction.
TEST(Contexts, GoInAnyOrderWithTheirPlansStreamsAndBuffers) {
  std::mt19937 random(static_cast<uint32_t>(GTEST_FLAG_GET(random_seed)));
  for (int round = 0; round < 60 / kTimesFewer; ++round) {
    const int nodes = 1 + round % 3;
    const bool fails = round % 4 == 3;
    ClusterOptions options = cluster_of(nodes, 2);
    if (fails) options.loopback.fail_after = round % 7;
    std::vector<std::shared_ptr<void>> things;
    {
      auto contexts = value_of(Context::create_virtual(options));
      std::vector<std::shared_ptr<AllGatherGemm>> plans;
      for (Context& context : contexts)
        for (int copies = 0; copies < 2; ++copies) {
          things.push_back(std::make_shared<Stream>(value_of(context.create_stream())));
          things.push_back(std::make_shared<Buffer>(value_of(context.allocate(4096))));
        }
      std::vector<StreamHandle> handles;
      for (Context& context : contexts) {
        plans.push_back(std::make_shared<AllGatherGemm>(
            value_of(AllGatherGemm::create(context, shape_of(33, 8, 8)))));
        things.push_back(plans.back());
      }
      for (size_t r = 0; r < contexts.size(); ++r) {
        const auto stream = std::static_pointer_cast<Stream>(things[4 * r]);
        const auto in = std::static_pointer_cast<Buffer>(things[4 * r + 1]);
        const auto out = std::static_pointer_cast<Buffer>(things[4 * r + 3]);
        const RowRange rows = rows_of_rank(33, contexts[r].world_size(), contexts[r].rank());
        const std::vector<char> zeros(in->bytes(), 0);
        expect_ok(contexts[r].upload(in->data(), zeros.data(), zeros.size()));
        handles.push_back(stream->handle());
        const Status run = plans[r]->run(handles[r], {in->data(), rows.count, 8, 8},
                                         {in->data(), 8, 8, 8}, {out->data(), 33, 8, 8});
        EXPECT_TRUE(run || fails) << run.to_string();
      }
      for (size_t r = 0; r < contexts.size(); ++r)
        EXPECT_TRUE(contexts[r].synchronize(handles[r]) || fails);
      for (Context& context : contexts)
        things.push_back(std::make_shared<Context>(std::move(context)));
    }
    std::shuffle(things.begin(), things.end(), random);
    expect_ends(seconds(60), [things]() mutable {
      while (!things.empty()) things.pop_back();
    });
    while (!things.empty()) things.pop_back();
  }
}

}  // namespace
}  // namespace mkernel::test
