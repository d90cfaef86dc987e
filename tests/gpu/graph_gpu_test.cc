// AllGather+GEMM captured in CUDA graphs: the device owns the epoch, so a replay is a launch like
// any other.
#include <cuda_runtime.h>
#include <gtest/gtest.h>

#include <random>
#include <vector>

#include <mkernel/operators.h>

#include "core/float16.h"
#include "operators/machine.h"

namespace mkernel {
namespace {

constexpr int kReplays = 1000;

struct Rank {
  Context* context;
  Stream stream;
  AllGatherGemm plan;
  Buffer a, b, c;       // of every replay: the graph is captured once
  Buffer all_a, all_c;  // fresh inputs and the outputs of each replay
  cudaGraphExec_t graph = nullptr;
  std::vector<uint16_t> host_a, host_b;

  cudaStream_t cuda_stream() const { return static_cast<cudaStream_t>(stream.handle()); }
};

/// Where rows are no multiple of 16 bytes, operands are repacked in the graph too.
struct Sizes {
  int64_t m, n, k;
  Push push = Push::kBlocks;
};

std::vector<uint16_t> random_bits(std::mt19937& random, int64_t count) {
  std::vector<uint16_t> bits(static_cast<size_t>(count));
  for (uint16_t& b : bits)
    b = float_to_bf16(static_cast<float>(std::uniform_int_distribution<int>(-4, 4)(random)));
  return bits;
}

class GraphGpu : public ::testing::TestWithParam<Sizes> {
 protected:
  void SetUp() override {
    if (num_cuda_devices() == 0) GTEST_SKIP() << "no GPU on this machine";
    if (GetParam().push == Push::kEngine && num_cuda_devices() < kRanks)
      GTEST_SKIP() << "fewer GPUs than ranks: no copy engine can push";
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

  static constexpr int kRanks = 2;
  static uint64_t bytes(int64_t elements) { return static_cast<uint64_t>(elements) * 2; }

  void add_rank(Context& context) {
    const auto [m, n, k, push] = GetParam();
    const int64_t rows = m / kRanks;
    const auto buffer = [&](int64_t elements) {
      return std::move(context.allocate(bytes(elements)).value());
    };
    auto plan = AllGatherGemm::create(context, {.m = m, .n = n, .k = k}, {.push = push});
    ASSERT_TRUE(plan) << plan.status().to_string();
    ranks_.push_back({&context, std::move(context.create_stream().value()), std::move(plan.value()),
                      buffer(rows * k), buffer(k * n), buffer(m * n), buffer(rows * k * kReplays),
                      buffer(m * n * kReplays), nullptr, random_bits(random_, rows * k * kReplays),
                      random_bits(random_, k * n)});
    Rank& r = ranks_.back();
    ASSERT_TRUE(context.upload(r.all_a.data(), r.host_a.data(), bytes(rows * k * kReplays)));
    ASSERT_TRUE(context.upload(r.b.data(), r.host_b.data(), bytes(k * n)));
  }

  void capture(Rank& r) {
    const auto [m, n, k, push] = GetParam();
    ASSERT_EQ(cudaSetDevice(device_of(r)), cudaSuccess);
    ASSERT_EQ(cudaStreamBeginCapture(r.cuda_stream(), cudaStreamCaptureModeThreadLocal),
              cudaSuccess);
    const Status run = r.plan.run(r.stream.handle(), {r.a.data(), m / kRanks, k, k},
                                  {r.b.data(), k, n, n}, {r.c.data(), m, n, n});
    cudaGraph_t graph = nullptr;
    ASSERT_EQ(cudaStreamEndCapture(r.cuda_stream(), &graph), cudaSuccess);
    ASSERT_TRUE(run) << run.to_string();
    ASSERT_EQ(cudaGraphInstantiate(&r.graph, graph, 0), cudaSuccess);
    ASSERT_EQ(cudaGraphDestroy(graph), cudaSuccess);
  }

  static int device_of(const Rank& r) {
    cudaPointerAttributes attributes{};
    EXPECT_EQ(cudaPointerGetAttributes(&attributes, r.a.data()), cudaSuccess);
    return attributes.device;
  }

  void replay(Rank& r, int i) {
    const auto [m, n, k, push] = GetParam();
    const uint64_t a_bytes = bytes(m / kRanks * k), c_bytes = bytes(m * n);
    ASSERT_EQ(cudaSetDevice(device_of(r)), cudaSuccess);
    const auto at = [i](const Buffer& all, uint64_t size) {
      return static_cast<char*>(all.data()) + size * static_cast<uint64_t>(i);
    };
    ASSERT_EQ(cudaMemcpyAsync(r.a.data(), at(r.all_a, a_bytes), a_bytes, cudaMemcpyDefault,
                              r.cuda_stream()),
              cudaSuccess);
    ASSERT_EQ(cudaGraphLaunch(r.graph, r.cuda_stream()), cudaSuccess);
    ASSERT_EQ(cudaMemcpyAsync(at(r.all_c, c_bytes), r.c.data(), c_bytes, cudaMemcpyDefault,
                              r.cuda_stream()),
              cudaSuccess);
  }

  void verify(Rank& r) {
    const auto [m, n, k, push] = GetParam();
    std::vector<uint16_t> c(static_cast<size_t>(m * n * kReplays));
    ASSERT_TRUE(r.context->download(c.data(), r.all_c.data(), bytes(m * n * kReplays)));
    std::vector<float> sums(static_cast<size_t>(n));
    for (int replay = 0; replay < kReplays; ++replay)
      for (int64_t i = 0; i < m; ++i) {
        const Rank& owner = ranks_[static_cast<size_t>(i / (m / kRanks))];
        const uint16_t* a =
            &owner.host_a[static_cast<size_t>((replay * (m / kRanks) + i % (m / kRanks)) * k)];
        std::fill(sums.begin(), sums.end(), 0.0f);
        for (int64_t d = 0; d < k; ++d)
          for (int64_t j = 0; j < n; ++j)
            sums[static_cast<size_t>(j)] +=
                bf16_to_float(a[d]) * bf16_to_float(r.host_b[static_cast<size_t>(d * n + j)]);
        for (int64_t j = 0; j < n; ++j)
          ASSERT_EQ(c[static_cast<size_t>((replay * m + i) * n + j)],
                    float_to_bf16(sums[static_cast<size_t>(j)]))
              << "replay " << replay << " rank " << r.context->rank() << " row " << i << " col "
              << j;
      }
  }

  std::mt19937 random_{7};
  std::vector<Context> contexts_;
  std::vector<Rank> ranks_;
};

TEST_P(GraphGpu, AThousandReplaysWithFreshInputsAreAllRight) {
  for (int i = 0; i < kReplays; ++i)
    for (Rank& r : ranks_) replay(r, i);
  for (Rank& r : ranks_) {
    const Status status = r.context->synchronize(r.stream.handle());
    ASSERT_TRUE(status) << status.to_string();
  }
  for (Rank& r : ranks_) verify(r);
}

INSTANTIATE_TEST_SUITE_P(AlignedAndNot, GraphGpu,
                         ::testing::Values(Sizes{64, 72, 64}, Sizes{64, 67, 61},
                                           Sizes{64, 72, 64, Push::kEngine}));

}  // namespace
}  // namespace mkernel
