// AllGatherGemm as a caller meets it: what it refuses, and in which words.
#include <gtest/gtest.h>
#include <sys/mman.h>

#include <cstdint>
#include <cstdlib>
#include <functional>
#include <limits>
#include <memory>
#include <string>
#include <vector>

#include <mkernel/operators.h>

#include "tests/operators/plan_on_ranks.h"

namespace mkernel::test {
namespace {

constexpr int64_t kMin = std::numeric_limits<int64_t>::min();
constexpr int64_t kMax = std::numeric_limits<int64_t>::max();
constexpr int64_t kMostRows = int64_t{1} << 30;

void expect_refused(const Context& context, const AllGatherGemmShape& shape,
                    const AllGatherGemmTuning& tuning, const std::vector<std::string>& words) {
  const auto plan = AllGatherGemm::create(context, shape, tuning);
  ASSERT_FALSE(plan) << "accepted, but should say: " << words.front();
  expect_error(plan.status(), Code::kInvalidArgument, words);
}

TEST(AllGatherGemm, SizesOutOfRangeAreRefusedByNameAndValue) {
  const Ranks ranks(cluster_of(1, 2));
  const Context& context = ranks.contexts[0];
  const std::string most = std::to_string(kMostRows);
  for (const int64_t bad : {int64_t{-1}, kMin, kMostRows + 1, int64_t{1} << 31, int64_t{1} << 32,
                            (int64_t{1} << 32) + 8, kMax}) {
    const std::string given = " = " + std::to_string(bad);
    expect_refused(context, {.m = bad, .n = 8, .k = 8}, {}, {"m" + given, "0 to " + most});
    expect_refused(context, {.m = 8, .n = bad, .k = 8}, {}, {"n" + given, "1 to " + most});
    expect_refused(context, {.m = 8, .n = 8, .k = bad}, {}, {"k" + given, "1 to " + most});
  }
  expect_refused(context, {.m = 8, .n = 0, .k = 8}, {}, {"n = 0", "1 to"});
  expect_refused(context, {.m = 8, .n = 8, .k = 0}, {}, {"k = 0", "1 to"});
  expect_refused(context, {}, {}, {"n = 0"});
}

TEST(AllGatherGemm, TuningOutOfRangeIsRefusedByNameAndValue) {
  const Ranks ranks(cluster_of(1, 2));
  const Context& context = ranks.contexts[0];
  const AllGatherGemmShape shape{.m = 64, .n = 8, .k = 8};
  const int min = std::numeric_limits<int>::min(), max = std::numeric_limits<int>::max();
  for (const int bad : {-1, 65, min, max})
    expect_refused(context, shape, {.blocks = bad}, {"blocks = " + std::to_string(bad), "64"});
  for (const int bad : {-1, 3, min, max})
    expect_refused(context, shape, {.blocks = 2, .comm_blocks = bad},
                   {"comm_blocks = " + std::to_string(bad), "to 2"});
  for (const int bad : {-1, min, max})
    expect_refused(context, shape, {.chunk_rows = bad}, {"chunk_rows = " + std::to_string(bad)});
  for (const int bad : {-1, 1, 64, min, max})
    expect_refused(context, shape, {.tile_n = bad},
                   {"tile_n = " + std::to_string(bad), "0 (plan chooses), 32, 16 are allowed"});
}

TEST(AllGatherGemm, TheLimitsOfTuningAreAllowed) {
  Ranks ranks(cluster_of(2, 2));
  const AllGatherGemmShape shape{.m = 100, .n = 40, .k = 20};
  PlanOnRanks(ranks, shape, {.blocks = 64, .comm_blocks = 64}).expect_right();
  PlanOnRanks(ranks, shape, {.blocks = 1, .comm_blocks = 1, .chunk_rows = 1}).expect_right();
  PlanOnRanks(ranks, shape, {.chunk_rows = static_cast<int>(kMostRows)}).expect_right();
  for (const int width : {16, 32}) PlanOnRanks(ranks, shape, {.tile_n = width}).expect_right();
}

/// A view, and what an error about it has to say.
struct BadView {
  Matrix view;
  std::vector<std::string> words;
};

std::vector<BadView> bad_views(const std::string& name, const Matrix& good) {
  const auto with = [&](auto change) {
    Matrix view = good;
    change(view);
    return view;
  };
  std::vector<BadView> bad;
  for (const int64_t rows : {good.rows - 1, good.rows + 1, int64_t{-1}, kMax})
    bad.push_back({with([&](Matrix& m) { m.rows = rows; }),
                   {name + ".rows = " + std::to_string(rows), std::to_string(good.rows)}});
  for (const int64_t cols : {good.cols - 1, good.cols + 1, int64_t{-1}, kMax})
    bad.push_back({with([&](Matrix& m) { m.cols = cols; }),
                   {name + ".cols = " + std::to_string(cols), std::to_string(good.cols)}});
  for (const int64_t ld : {good.cols - 1, int64_t{0}, -good.ld, kMin})
    bad.push_back({with([&](Matrix& m) { m.ld = ld; }),
                   {name + ".ld = " + std::to_string(ld), std::to_string(good.cols)}});
  bad.push_back({with([](Matrix& m) { m.data = nullptr; }), {name + ".data", "null"}});
  bad.push_back({with([](Matrix& m) { m.data = static_cast<char*>(m.data) + 1; }),
                 {name + ".data", "aligned"}});
  return bad;
}

TEST(AllGatherGemm, ViewsThatDoNotFitAreRefusedAndNothingIsEnqueued) {
  for (const BLayout layout : {BLayout::kKN, BLayout::kNK}) {
    Ranks ranks(cluster_of(1, 2));
    PlanOnRanks plans(ranks, {.m = 37, .n = 24, .k = 11, .b_layout = layout});
    RankPlan& mine = plans[0];
    const Matrix a = mine.a().view(), b = mine.b().view(), c = mine.c().view();
    const auto run = [&](const Matrix& with_a, const Matrix& with_b, const Matrix& with_c) {
      return mine.plan().run(ranks.streams[0].handle(), with_a, with_b, with_c);
    };
    for (const BadView& bad : bad_views("a", a))
      expect_error(run(bad.view, b, c), Code::kInvalidArgument, bad.words);
    for (const BadView& bad : bad_views("b", b))
      expect_error(run(a, bad.view, c), Code::kInvalidArgument, bad.words);
    for (const BadView& bad : bad_views("c", c))
      expect_error(run(a, b, bad.view), Code::kInvalidArgument, bad.words);
    plans.expect_right();  // had one been enqueued, rank 0 would be a launch ahead
    EXPECT_EQ(value_of(ranks.contexts[0].statistics()).launches, 1u);
  }
}

/// (rows - 1) * ld elements of 2 bytes must have addresses: ld = 2^62 + 8 wrapped to rows that lie
/// 16 bytes apart. In a process of its own, because a launch would write anywhere.
TEST(AllGatherGemm, LeadingDimensionsBeyondAddressesAreRefused) {
  const auto num_accepted = [] {
    Ranks ranks(cluster_of(1, 1));
    PlanOnRanks plans(ranks, {.m = 5, .n = 4, .k = 3});
    const Matrix good[] = {plans[0].a().view(), plans[0].b().view(), plans[0].c().view()};
    int accepted = 0;
    for (const int64_t ld : {(int64_t{1} << 62) + 8, kMax})
      for (int operand = 0; operand < 3; ++operand) {
        Matrix v[] = {good[0], good[1], good[2]};
        v[operand].ld = ld;
        const Status run = plans[0].plan().run(ranks.streams[0].handle(), v[0], v[1], v[2]);
        if (run.code() != Code::kInvalidArgument) ++accepted;
        if (accepted > 0) std::_Exit(accepted);
      }
    return accepted;
  };
  EXPECT_EXIT(std::_Exit(num_accepted()), ::testing::ExitedWithCode(0), "");
}

TEST(AllGatherGemm, EmptyViewsMayBeNull) {
  Ranks ranks(cluster_of(1, 3));
  const AllGatherGemmShape shape{.m = 0, .n = 4, .k = 3};
  std::vector<AllGatherGemm> plans;
  for (const Context& context : ranks.contexts)
    plans.push_back(value_of(AllGatherGemm::create(context, shape)));
  std::vector<Buffer> b;
  for (size_t r = 0; r < 3; ++r) {
    b.push_back(value_of(ranks.contexts[r].allocate(24)));
    expect_ok(plans[r].run(ranks.streams[r].handle(), {nullptr, 0, 3, 3}, {b[r].data(), 3, 4, 4},
                           {nullptr, 0, 4, 4}));
  }
  expect_ok(ranks.synchronize());
}

/// Offsets of rows go beyond 32 bits: a pitch of 2^32 + 16 bytes read as 16.
TEST(AllGatherGemm, RowsMayLieMoreThanFourGiBApart) {
  constexpr int64_t kLd = (int64_t{1} << 31) + 8, kRows = 3, kColumns = 4;
  const auto map = [&] {
    const size_t bytes = static_cast<size_t>(kLd * kRows) * kElementBytes;
    void* p = mmap(nullptr, bytes, PROT_READ | PROT_WRITE,
                   MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    return std::unique_ptr<uint16_t, std::function<void(uint16_t*)>>(
        p == MAP_FAILED ? nullptr : static_cast<uint16_t*>(p),
        [bytes](uint16_t* mapped) { munmap(mapped, bytes); });
  };
  const auto a = map(), b = map(), c = map();
  if (!a || !b || !c) GTEST_SKIP() << "no 12 GiB of address space";
  const auto at = [](int64_t i, int64_t j) { return i * kLd + j; };
  for (int64_t i = 0; i < kRows; ++i)
    for (int64_t j = 0; j < kColumns; ++j) {
      a.get()[at(i, j)] = from_float(static_cast<float>(a_value(0, i, j)), DType::kBf16);
      b.get()[at(i, j)] = from_float(static_cast<float>(b_value(0, 0, i, j)), DType::kBf16);
    }
  Ranks ranks(cluster_of(1, 1));
  auto plan = value_of(AllGatherGemm::create(
      ranks.contexts[0], {.m = kRows, .n = kColumns, .k = 3, .gather_a = true}));
  expect_ok(plan.run(ranks.streams[0].handle(), {a.get(), kRows, 3, kLd},
                     {b.get(), 3, kColumns, kLd}, {c.get(), kRows, kColumns, kLd}));
  expect_ok(ranks.synchronize());
  for (int64_t i = 0; i < kRows; ++i)
    for (int64_t j = 0; j < kColumns; ++j) {
      int sum = 0;
      for (int64_t d = 0; d < 3; ++d) sum += a_value(0, i, d) * b_value(0, 0, d, j);
      EXPECT_EQ(to_float(c.get()[at(i, j)], DType::kBf16), static_cast<float>(sum));
    }
}

TEST(AllGatherGemm, GatheredAWithoutAskingForItIsRefused) {
  Ranks ranks(cluster_of(1, 2));
  PlanOnRanks plan(ranks, {.m = 8, .n = 8, .k = 8});
  plan.expect_right();
  expect_error(plan[0].plan().gathered_a().status(), Code::kInvalidArgument,
               {"gathered_a", "without gather_a"});
}

TEST(AllGatherGemm, GatheredABeforeARunIsRefused) {
  Ranks ranks(cluster_of(2, 2));
  PlanOnRanks plan(ranks, {.m = 30, .n = 8, .k = 8, .gather_a = true});
  expect_error(plan[0].plan().gathered_a().status(), Code::kInvalidArgument,
               {"gathered_a", "no run yet"});
  plan.expect_right();
  EXPECT_TRUE(plan[0].plan().gathered_a());
}

/// A stream that is none ended the process.
TEST(AllGatherGemm, ANullStreamIsRefusedOnTheHostMachine) {
  EXPECT_EXIT(
      {
        Ranks ranks(cluster_of(1, 1));
        PlanOnRanks plans(ranks, {.m = 4, .n = 4, .k = 4});
        RankPlan& mine = plans[0];
        const Status run =
            mine.plan().run(nullptr, mine.a().view(), mine.b().view(), mine.c().view());
        const Status end = ranks.contexts[0].synchronize(nullptr);
        const bool refused =
            run.code() == Code::kInvalidArgument && end.code() == Code::kInvalidArgument;
        std::_Exit(refused ? 0 : 1);
      },
      ::testing::ExitedWithCode(0), "");
}

}  // namespace
}  // namespace mkernel::test
