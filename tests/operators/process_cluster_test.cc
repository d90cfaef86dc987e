// Clusters of processes: each rank has a context of its own, and knows the others by rendezvous
// alone. Here ranks are threads, so that sanitizers watch all of them; tests/processes starts
// processes.
#include <gtest/gtest.h>

#include <array>
#include <chrono>
#include <deque>
#include <functional>
#include <thread>
#include <vector>

#include <mkernel/operators.h>

#include "core/float16.h"
#include "rendezvous/groups.h"

namespace mkernel {
namespace {

/// Options of a run that no other test has.
std::vector<RendezvousOptions> options_of(uint32_t world) {
  static int runs = 0;
  return test::options_of(world, "run " + std::to_string(runs++));
}

constexpr int64_t kM = 53, kN = 40, kK = 24;

/// Small integers, different by rank, launch and place.
float a_at(int launch, int64_t row, int64_t col) {
  return static_cast<float>((row * 7 + col * 3 + launch * 5) % 11 - 5);
}
float b_at(int rank, int launch, int64_t row, int64_t col) {
  return static_cast<float>((row * 5 + col * 2 + launch + rank * 3) % 7 - 3);
}

using Bits = std::vector<uint16_t>;

/// Launches of one rank, each with fresh operands, enqueued without a wait between them.
class OneRank {
 public:
  OneRank(Context& context, AllGatherGemm& plan)
      : context_(context), plan_(plan), rows_(rows_of_rank(kM, context.world_size(), rank())) {}

  int rank() const { return context_.rank(); }

  Status run(int launches) {
    auto stream = context_.create_stream();
    if (!stream) return stream.status();
    for (int i = 0; i < launches; ++i) MK_RETURN_IF_ERROR(launch(i, stream->handle()));
    MK_RETURN_IF_ERROR(context_.synchronize(stream->handle()));
    for (int i = 0; i < launches; ++i) verify(i);
    return Status::ok();
  }

 private:
  Status launch(int i, StreamHandle stream) {
    Bits& a = keep_.emplace_back();
    for (int64_t r = 0; r < rows_.count; ++r)
      for (int64_t c = 0; c < kK; ++c)
        a.push_back(from_float(a_at(i, rows_.begin + r, c), DType::kBf16));
    Bits& b = keep_.emplace_back();
    for (int64_t r = 0; r < kK; ++r)
      for (int64_t c = 0; c < kN; ++c) b.push_back(from_float(b_at(rank(), i, r, c), DType::kBf16));
    Bits& c = keep_.emplace_back(static_cast<size_t>(kM * kN), uint16_t{0x7fff});
    return plan_.run(stream, {a.data(), rows_.count, kK, kK}, {b.data(), kK, kN, kN},
                     {c.data(), kM, kN, kN});
  }

  void verify(int i) const {
    const Bits& c = keep_[static_cast<size_t>(i) * 3 + 2];
    for (int64_t row = 0; row < kM; ++row)
      for (int64_t col = 0; col < kN; ++col) {
        float sum = 0;
        for (int64_t k = 0; k < kK; ++k) sum += a_at(i, row, k) * b_at(rank(), i, k, col);
        ASSERT_EQ(c[static_cast<size_t>(row * kN + col)], from_float(sum, DType::kBf16))
            << "rank " << rank() << " launch " << i << " C(" << row << ", " << col << ")";
      }
  }

  Context& context_;
  AllGatherGemm& plan_;
  const RowRange rows_;
  std::deque<Bits> keep_;  // until the launches are done
};

constexpr AllGatherGemmShape kShape{.m = kM, .n = kN, .k = kK};

ClusterOptions cluster_of(int nodes, int gpus) {
  ClusterOptions options;
  options.nodes = nodes;
  options.gpus = gpus;
  return options;
}

/// What each rank's life came to. A rank is a thread; `live` is its life once its context is there.
std::vector<Status> on_ranks(const ClusterOptions& cluster,
                             const std::vector<RendezvousOptions>& rendezvous,
                             const std::function<Status(Context&)>& live) {
  std::vector<Status> outcomes(rendezvous.size());
  test::in_threads(rendezvous.size(), [&](size_t i) {
    auto context = Context::create(cluster, rendezvous[i]);
    outcomes[i] = context ? live(*context) : context.status();
  });
  return outcomes;
}

void expect_all_ok(const std::vector<Status>& outcomes) {
  for (size_t i = 0; i < outcomes.size(); ++i)
    EXPECT_TRUE(outcomes[i]) << "rank " << i << ": " << outcomes[i].to_string();
}

Status run_plan(Context& context, int launches) {
  auto plan = AllGatherGemm::create(context, kShape);
  if (!plan) return plan.status();
  return OneRank(context, *plan).run(launches);
}

TEST(ProcessCluster, EveryLayoutIsRight) {
  for (const auto& [nodes, gpus] :
       {std::pair{1, 1}, {1, 2}, {2, 1}, {1, 4}, {2, 2}, {3, 1}, {2, 3}}) {
    SCOPED_TRACE(std::to_string(nodes) + " x " + std::to_string(gpus));
    expect_all_ok(on_ranks(cluster_of(nodes, gpus), options_of(static_cast<uint32_t>(nodes * gpus)),
                           [](Context& context) { return run_plan(context, 5); }));
  }
}

TEST(ProcessCluster, PlansComeAndGoAndEpochsWrap) {
  ClusterOptions options = cluster_of(2, 2);
  options.first_epoch = 0xfffffffdu;
  expect_all_ok(on_ranks(options, options_of(4), [](Context& context) -> Status {
    for (int i = 0; i < 4; ++i) MK_RETURN_IF_ERROR(run_plan(context, i + 1));
    return Status::ok();
  }));
}

TEST(ProcessCluster, LayoutIsFoundFromWhoSharesAHost) {
  std::vector<RendezvousOptions> rendezvous = options_of(4);
  for (size_t i = 0; i < 4; ++i) rendezvous[i].host_id = i < 2 ? "one" : "two";
  ClusterOptions options = cluster_of(0, 0);
  options.transport = "none of ours";
  for (const Status& status :
       on_ranks(options, rendezvous, [](Context&) { return Status::ok(); })) {
    EXPECT_EQ(status.code(), Code::kInvalidArgument) << status.to_string();
    EXPECT_NE(status.message().find("transport"), std::string::npos) << status.message();
  }
  expect_all_ok(on_ranks(cluster_of(0, 0), options_of(4), [](Context& context) {
    EXPECT_EQ(context.nodes(), 1);
    EXPECT_EQ(context.gpus(), 4);
    return Status::ok();
  }));
}

void expect_refusal(const ClusterOptions& options, std::vector<RendezvousOptions> rendezvous,
                    const std::string& mention) {
  for (const Status& status :
       on_ranks(options, rendezvous, [](Context&) { return Status::ok(); })) {
    EXPECT_EQ(status.code(), Code::kInvalidArgument) << status.to_string();
    EXPECT_NE(status.message().find(mention), std::string::npos) << status.message();
  }
}

TEST(ProcessCluster, LayoutThatDoesNotFitIsRefused) {
  expect_refusal(cluster_of(3, 1), options_of(2), "there are 2 processes");
  std::vector<RendezvousOptions> rendezvous = options_of(2);
  rendezvous[0].host_id = "one";
  rendezvous[1].host_id = "two";
  expect_refusal(cluster_of(1, 2), rendezvous, "which has one host");
}

TEST(ProcessCluster, DifferentOptionsAreRefused) {
  const auto rendezvous = options_of(2);
  std::vector<Status> outcomes(2);
  test::in_threads(2, [&](size_t i) {
    outcomes[i] =
        Context::create(i == 0 ? cluster_of(1, 2) : cluster_of(2, 1), rendezvous[i]).status();
  });
  for (const Status& status : outcomes) {
    EXPECT_EQ(status.code(), Code::kInvalidArgument) << status.to_string();
    EXPECT_NE(status.message().find("rank 1"), std::string::npos) << status.message();
  }
}

TEST(ProcessCluster, DifferentPlansAreRefusedAndTheNextOneWorks) {
  expect_all_ok(on_ranks(cluster_of(1, 3), options_of(3), [](Context& context) -> Status {
    AllGatherGemmShape shape = kShape;
    shape.m += context.rank() == 1 ? 1 : 0;
    EXPECT_EQ(AllGatherGemm::create(context, shape).status().code(), Code::kInvalidArgument);
    return run_plan(context, 2);
  }));
}

TEST(ProcessCluster, PlanThatFailsOnOneRankFailsOnAll) {
  const auto rendezvous = options_of(3);
  std::vector<Status> outcomes(3);
  test::in_threads(3, [&](size_t i) {
    ClusterOptions options = cluster_of(3, 1);
    if (i == 2) options.heap_bytes_limit = 100;
    auto context = Context::create(options, rendezvous[i]);
    ASSERT_TRUE(context) << context.status().to_string();
    outcomes[i] = AllGatherGemm::create(*context, kShape).status();
  });
  for (const Status& status : outcomes) {
    EXPECT_EQ(status.code(), Code::kInvalidArgument) << status.to_string();
    EXPECT_NE(status.message().find("rank 2"), std::string::npos) << status.message();
  }
}

TEST(ProcessCluster, AFailureOfOneRankIsTheFailureOfAll) {
  const auto rendezvous = options_of(3);
  std::vector<Status> outcomes(3);
  test::in_threads(3, [&](size_t i) {
    ClusterOptions options = cluster_of(3, 1);
    if (i == 1) options.loopback.fail_after = 4;
    auto context = Context::create(options, rendezvous[i]);
    ASSERT_TRUE(context) << context.status().to_string();
    outcomes[i] = run_plan(*context, 50);
  });
  for (const Status& status : outcomes) {
    EXPECT_EQ(status.code(), Code::kPeerFailed) << status.to_string();
    EXPECT_NE(status.message().find("rank 1"), std::string::npos) << status.message();
  }
}

TEST(ProcessCluster, ARankThatDoesNotLaunchIsNamedAndANewClusterWorks) {
  ClusterOptions options = cluster_of(2, 1);
  options.timeout_us = 200'000;
  options.contact_timeout_us = 1'000'000;
  const auto outcomes = on_ranks(options, options_of(2), [](Context& context) -> Status {
    auto plan = AllGatherGemm::create(context, kShape);
    if (!plan) return plan.status();
    if (context.rank() == 0) return OneRank(context, *plan).run(1);
    Status status;
    while (status) {
      std::this_thread::sleep_for(std::chrono::milliseconds(10));
      status = AllGatherGemm::create(context, {.m = 1, .n = 1, .k = 1}).status();
    }
    return status;
  });
  for (const Status& status : outcomes) EXPECT_FALSE(status);
  EXPECT_EQ(outcomes[0].code(), Code::kTimeout) << outcomes[0].to_string();
  EXPECT_NE(outcomes[0].message().find("rank 1"), std::string::npos) << outcomes[0].message();
  expect_all_ok(on_ranks(cluster_of(2, 1), options_of(2),
                         [](Context& context) { return run_plan(context, 3); }));
}

/// Enqueues a launch and goes away without waiting for it.
Status launch_and_leave(Context& context) {
  auto plan = AllGatherGemm::create(context, kShape);
  if (!plan) return plan.status();
  auto stream = context.create_stream();
  if (!stream) return stream.status();
  const int64_t rows = rows_of_rank(kM, context.world_size(), context.rank()).count;
  static const Bits a(kM * kK), b(kK * kN);
  static std::array<Bits, 4> c;
  Bits& mine = c[static_cast<size_t>(context.rank())];
  mine.resize(kM * kN);
  return plan->run(stream->handle(), {const_cast<uint16_t*>(a.data()), rows, kK, kK},
                   {const_cast<uint16_t*>(b.data()), kK, kN, kN}, {mine.data(), kM, kN, kN});
}

TEST(ProcessCluster, ContextsMayGoWithLaunchesInFlight) {
  expect_all_ok(on_ranks(cluster_of(2, 2), options_of(4), [](Context& context) {
    std::this_thread::sleep_for(std::chrono::milliseconds(20 * context.rank()));
    return launch_and_leave(context);
  }));
  // One that leaves and never launches must not keep the others for good.
  ClusterOptions options = cluster_of(2, 1);
  options.timeout_us = 200'000;
  options.contact_timeout_us = 1'000'000;
  (void)on_ranks(options, options_of(2), [](Context& context) -> Status {
    if (context.rank() == 0) return launch_and_leave(context);
    return AllGatherGemm::create(context, kShape).status();
  });
  expect_all_ok(on_ranks(cluster_of(2, 1), options_of(2),
                         [](Context& context) { return run_plan(context, 3); }));
}

}  // namespace
}  // namespace mkernel
