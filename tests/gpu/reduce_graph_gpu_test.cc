// GEMM+ReduceScatter and GEMM+AllReduce captured in CUDA graphs and replayed: the device owns the
// epoch, so the same graph gives the same bits every time, and right ones.
#include <cuda_runtime.h>
#include <gtest/gtest.h>

#include <memory>
#include <vector>

#include <mkernel/operators.h>

#include "core/float16.h"
#include "operators/machine.h"

namespace mkernel {
namespace {

constexpr int kRanks = 2;
constexpr int kReplays = 300;
constexpr int64_t kRows = 260, kCols = 264, kDepth = 72;

struct Rank {
  Context* context;
  Stream stream;
  std::unique_ptr<GemmReduce> plan;
  Buffer a, b, c;
  cudaGraphExec_t graph = nullptr;
};

class ReduceGraphGpu : public ::testing::TestWithParam<bool> {
 protected:
  void SetUp() override {
    if (num_cuda_devices() == 0) GTEST_SKIP() << "no GPU on this machine";
    ClusterOptions options;
    options.gpus = kRanks;
    options.device = DeviceKind::kCuda;
    options.timeout_us = 5'000'000;
    options.contact_timeout_us = 5'000'000;
    auto contexts = Context::create_virtual(options);
    ASSERT_TRUE(contexts) << contexts.status().to_string();
    contexts_ = std::move(contexts.value());
    for (Context& context : contexts_) add_rank(context);
    for (Rank& r : ranks_) capture(r);
  }
  void TearDown() override {
    for (Rank& r : ranks_) (void)cudaGraphExecDestroy(r.graph);
  }

  static bool gathers() { return GetParam(); }
  static uint64_t bytes(int64_t elements) { return static_cast<uint64_t>(elements) * 2; }
  static int64_t rows_c() { return gathers() ? kRows : kRows / kRanks; }

  /// Small integers: a rank's product is at most 4 * kDepth, which bf16 holds nearly always; what
  /// it rounds is rounded in every replay alike.
  static std::vector<uint16_t> values(int64_t count, int modulus) {
    std::vector<uint16_t> bits(static_cast<size_t>(count));
    for (size_t i = 0; i < bits.size(); ++i)
      bits[i] = float_to_bf16(static_cast<float>(static_cast<int>(i % 7 * i) % modulus - 1));
    return bits;
  }

  void add_rank(Context& context) {
    const GemmReduceShape shape{.m = kRows, .n = kCols, .k = kDepth, .partials = Partials::kFp32};
    const GemmReduceTuning tuning{.round_tiles = 1};
    const auto buffer = [&](int64_t elements) {
      return std::move(context.allocate(bytes(elements)).value());
    };
    std::unique_ptr<GemmReduce> plan;
    if (gathers())
      plan = std::make_unique<GemmAllReduce>(
          std::move(GemmAllReduce::create(context, shape, tuning).value()));
    else
      plan = std::make_unique<GemmReduceScatter>(
          std::move(GemmReduceScatter::create(context, shape, tuning).value()));
    ranks_.push_back({&context, std::move(context.create_stream().value()), std::move(plan),
                      buffer(kRows * kDepth), buffer(kDepth * kCols), buffer(rows_c() * kCols)});
    Rank& r = ranks_.back();
    host_a_ = values(kRows * kDepth, 3);
    host_b_ = values(kDepth * kCols, 4);
    ASSERT_TRUE(context.upload(r.a.data(), host_a_.data(), bytes(kRows * kDepth)));
    ASSERT_TRUE(context.upload(r.b.data(), host_b_.data(), bytes(kDepth * kCols)));
  }

  void capture(Rank& r) {
    auto* stream = static_cast<cudaStream_t>(r.stream.handle());
    select_device(r);
    ASSERT_EQ(cudaStreamBeginCapture(stream, cudaStreamCaptureModeThreadLocal), cudaSuccess);
    const Status run = r.plan->run(r.stream.handle(), {.a = {r.a.data(), kRows, kDepth, kDepth},
                                                       .b = {r.b.data(), kDepth, kCols, kCols},
                                                       .c = {r.c.data(), rows_c(), kCols, kCols}});
    cudaGraph_t graph = nullptr;
    ASSERT_EQ(cudaStreamEndCapture(stream, &graph), cudaSuccess);
    ASSERT_TRUE(run) << run.to_string();
    ASSERT_EQ(cudaGraphInstantiate(&r.graph, graph, 0), cudaSuccess);
    ASSERT_EQ(cudaGraphDestroy(graph), cudaSuccess);
  }

  static void select_device(const Rank& r) {
    cudaPointerAttributes attributes{};
    ASSERT_EQ(cudaPointerGetAttributes(&attributes, r.a.data()), cudaSuccess);
    ASSERT_EQ(cudaSetDevice(attributes.device), cudaSuccess);
  }

  void verify(Rank& r) {
    std::vector<uint16_t> c(static_cast<size_t>(rows_c() * kCols));
    ASSERT_TRUE(r.context->download(c.data(), r.c.data(), bytes(rows_c() * kCols)));
    const int64_t first = gathers() ? 0 : r.context->rank() * rows_c();
    for (int64_t i = 0; i < rows_c(); ++i)
      for (int64_t j = 0; j < kCols; ++j) {
        float sum = 0;
        for (int64_t d = 0; d < kDepth; ++d)
          sum += bf16_to_float(host_a_[static_cast<size_t>((first + i) * kDepth + d)]) *
                 bf16_to_float(host_b_[static_cast<size_t>(d * kCols + j)]);
        ASSERT_EQ(c[static_cast<size_t>(i * kCols + j)], float_to_bf16(kRanks * sum))
            << "rank " << r.context->rank() << " row " << i << " col " << j;
      }
  }

  std::vector<uint16_t> host_a_, host_b_;
  std::vector<Context> contexts_;
  std::vector<Rank> ranks_;
};

TEST_P(ReduceGraphGpu, HundredsOfReplaysAreRight) {
  for (int i = 0; i < kReplays; ++i)
    for (Rank& r : ranks_) {
      select_device(r);
      auto* stream = static_cast<cudaStream_t>(r.stream.handle());
      // So that a replay that writes nothing is found.
      ASSERT_EQ(cudaMemsetAsync(r.c.data(), 0xff, r.c.bytes(), stream), cudaSuccess);
      ASSERT_EQ(cudaGraphLaunch(r.graph, stream), cudaSuccess);
    }
  for (Rank& r : ranks_) {
    const Status status = r.context->synchronize(r.stream.handle());
    ASSERT_TRUE(status) << status.to_string();
  }
  for (Rank& r : ranks_) verify(r);
}

INSTANTIATE_TEST_SUITE_P(ScatterAndAll, ReduceGraphGpu, ::testing::Bool());

}  // namespace
}  // namespace mkernel
