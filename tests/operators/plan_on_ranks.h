// What tests of the operators need around them: all ranks of a virtual cluster, and one plan on
// all of them whose operands are windows in larger matrices, so that every byte around is checked.
#pragma once
#include <gtest/gtest.h>

#include <chrono>
#include <functional>
#include <future>
#include <memory>
#include <stdexcept>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include <mkernel/operators.h>

#include "core/float16.h"

namespace mkernel::test {

#if defined(MK_SANITIZER)
inline constexpr bool kSanitizer = true;
#else
inline constexpr bool kSanitizer = false;
#endif
/// Sanitizers are ten times slower.
inline constexpr int kTimesFewer = kSanitizer ? 8 : 1;

/// For set-up that has no reason to fail.
template <class T>
T value_of(Result<T> result) {
  if (!result) throw std::runtime_error(result.status().to_string());  // ends the test
  return std::move(result).value();
}

inline void expect_ok(const Status& status) { EXPECT_TRUE(status) << status.to_string(); }

/// The code is as told, and the message has every one of the words.
inline void expect_error(const Status& status, Code code, const std::vector<std::string>& words) {
  EXPECT_EQ(status.code(), code) << status.to_string();
  for (const std::string& word : words)
    EXPECT_NE(status.message().find(word), std::string::npos)
        << "no \"" << word << "\" in: " << status.to_string();
}

inline ClusterOptions cluster_of(int nodes, int gpus) {
  ClusterOptions options;
  options.nodes = nodes;
  options.gpus = gpus;
  options.timeout_us = 60'000'000;
  return options;
}

/// All ranks of a virtual cluster, with a stream each.
struct Ranks {
  explicit Ranks(const ClusterOptions& options)
      : contexts(value_of(Context::create_virtual(options))) {
    for (Context& context : contexts) streams.push_back(value_of(context.create_stream()));
  }
  size_t size() const { return contexts.size(); }

  /// Waits for all streams; the last rank's status, whose streams have all stopped by then.
  Status synchronize() {
    Status status;
    for (size_t r = 0; r < size(); ++r) status = contexts[r].synchronize(streams[r].handle());
    return status;
  }

  std::vector<Context> contexts;
  std::vector<Stream> streams;
};

/// A window of rows x cols in a buffer that is larger on every side, and what it should hold.
class Window {
 public:
  static constexpr int64_t kAbove = 1, kLeft = 3, kRight = 2, kBelow = 1;
  static constexpr uint16_t kCanary = 0x7fe1;  // a NaN: neither an input nor a result

  Window(Context& context, int64_t rows, int64_t cols, DType dtype)
      : context_(&context),
        rows_(rows),
        cols_(cols),
        dtype_(dtype),
        expected_(static_cast<size_t>((kAbove + rows + kBelow) * ld()), kCanary),
        buffer_(value_of(context.allocate(bytes()))) {}

  Matrix view() const {
    return {static_cast<uint16_t*>(buffer_.data()) + at(0, 0), rows_, cols_, ld()};
  }

  /// Element (i, j) is to be value(i, j), an integer that both formats hold.
  template <class Value>
  void expect(Value&& value) {
    for (int64_t i = 0; i < rows_; ++i)
      for (int64_t j = 0; j < cols_; ++j)
        expected_[at(i, j)] = from_float(static_cast<float>(value(i, j)), dtype_);
  }
  void upload() { expect_ok(context_->upload(buffer_.data(), expected_.data(), bytes())); }
  void upload_canaries() {
    const std::vector<uint16_t> canaries(expected_.size(), kCanary);
    expect_ok(context_->upload(buffer_.data(), canaries.data(), bytes()));
  }
  void verify(const std::string& what) const {
    std::vector<uint16_t> got(expected_.size());
    expect_ok(context_->download(got.data(), buffer_.data(), bytes()));
    for (size_t i = 0; i < got.size(); ++i) {
      if (got[i] == expected_[i]) continue;
      const int64_t row = static_cast<int64_t>(i) / ld() - kAbove;
      const int64_t col = static_cast<int64_t>(i) % ld() - kLeft;
      ADD_FAILURE() << "rank " << context_->rank() << " " << what << "(" << row << ", " << col
                    << ") of " << rows_ << " x " << cols_ << " is " << to_float(got[i], dtype_)
                    << ", expected " << to_float(expected_[i], dtype_);
      return;
    }
  }

 private:
  int64_t ld() const { return kLeft + cols_ + kRight; }
  size_t at(int64_t i, int64_t j) const {
    return static_cast<size_t>((kAbove + i) * ld() + kLeft + j);
  }
  uint64_t bytes() const { return expected_.size() * kElementBytes; }

  Context* context_;
  int64_t rows_, cols_;
  DType dtype_;
  std::vector<uint16_t> expected_;
  Buffer buffer_;
};

/// Inputs as functions of the place: integers of -2 .. 2.
inline int a_value(int seed, int64_t i, int64_t d) {
  return static_cast<int>((i * 7 + d * 3 + seed) % 5) - 2;
}
inline int b_value(int seed, int rank, int64_t d, int64_t j) {
  return static_cast<int>((d * 2 + j * 5 + rank + seed * 3) % 5) - 2;
}

/// One plan on one rank, with its operands.
class RankPlan {
 public:
  RankPlan(Context& context, const AllGatherGemmShape& shape, const AllGatherGemmTuning& tuning)
      : context_(&context),
        shape_(shape),
        own_(rows_of_rank(shape.m, context.world_size(), context.rank())),
        plan_(value_of(AllGatherGemm::create(context, shape, tuning))),
        a_(context, own_.count, shape.k, shape.dtype),
        b_(context, kn() ? shape.k : shape.n, kn() ? shape.n : shape.k, shape.dtype),
        c_(context, shape.m, shape.n, shape.dtype) {
    fill(1);
  }

  /// New inputs, while nothing runs.
  void fill(int seed) {
    seed_ = seed;
    a_.expect([&](int64_t i, int64_t d) { return a_value(seed, own_.begin + i, d); });
    const int rank = context_->rank();
    if (kn())
      b_.expect([&](int64_t d, int64_t j) { return b_value(seed, rank, d, j); });
    else
      b_.expect([&](int64_t j, int64_t d) { return b_value(seed, rank, d, j); });
    c_.expect([&](int64_t i, int64_t j) {
      int sum = 0;
      for (int64_t d = 0; d < shape_.k; ++d) sum += a_value(seed, i, d) * b_value(seed, rank, d, j);
      return sum;
    });
    a_.upload();
    b_.upload();
    c_.upload_canaries();
  }

  Status run(const Stream& stream) {
    return plan_.run(stream.handle(), a_.view(), b_.view(), c_.view());
  }

  /// All of C, of the gathered A, and everything around; then forgets C.
  void verify() {
    a_.verify("A");
    b_.verify("B");
    c_.verify("C");
    c_.upload_canaries();
    if (!shape_.gather_a) return;
    const Matrix gathered = value_of(plan_.gathered_a());
    ASSERT_EQ(gathered.rows, shape_.m);
    ASSERT_EQ(gathered.cols, shape_.k);
    std::vector<uint16_t> got(static_cast<size_t>(gathered.rows * gathered.ld));
    expect_ok(context_->download(got.data(), gathered.data, got.size() * kElementBytes));
    for (int64_t i = 0; i < shape_.m; ++i)
      for (int64_t d = 0; d < shape_.k; ++d)
        ASSERT_EQ(to_float(got[static_cast<size_t>(i * gathered.ld + d)], shape_.dtype),
                  static_cast<float>(a_value(seed_, i, d)))
            << "rank " << context_->rank() << " gathered A(" << i << ", " << d << ")";
  }

  AllGatherGemm& plan() { return plan_; }
  Window& a() { return a_; }
  Window& b() { return b_; }
  Window& c() { return c_; }

 private:
  bool kn() const { return shape_.b_layout == BLayout::kKN; }

  Context* context_;
  AllGatherGemmShape shape_;
  RowRange own_;
  int seed_ = 1;
  AllGatherGemm plan_;
  Window a_, b_, c_;
};

/// One plan on all ranks.
class PlanOnRanks {
 public:
  PlanOnRanks(Ranks& ranks, const AllGatherGemmShape& shape, const AllGatherGemmTuning& tuning = {})
      : ranks_(&ranks) {
    for (Context& context : ranks.contexts) plans_.emplace_back(context, shape, tuning);
  }

  void fill(int seed) {
    for (RankPlan& plan : plans_) plan.fill(seed);
  }
  /// Enqueues a launch on every rank; the first refusal ends it.
  Status launch() { return launch_on(ranks_->streams); }
  Status launch_on(const std::vector<Stream>& streams) {
    for (size_t r = 0; r < plans_.size(); ++r) MK_RETURN_IF_ERROR(plans_[r].run(streams[r]));
    return Status::ok();
  }
  void verify() {
    for (RankPlan& plan : plans_) plan.verify();
  }
  /// One launch from start to end, every element compared.
  void expect_right() {
    expect_ok(launch());
    expect_ok(ranks_->synchronize());
    verify();
  }
  RankPlan& operator[](size_t rank) { return plans_[rank]; }

 private:
  Ranks* ranks_;
  std::vector<RankPlan> plans_;
};

/// Runs `body` on a thread of its own; a failure if it has not ended in time. `body` must own all
/// it uses: where it hangs, its thread outlives the test.
inline void expect_ends(std::chrono::seconds limit, std::function<void()> body) {
  auto task = std::make_shared<std::packaged_task<void()>>(std::move(body));
  std::future<void> end = task->get_future();
  std::thread([task] { (*task)(); }).detach();
  ASSERT_EQ(end.wait_for(limit), std::future_status::ready) << "still running after its limit";
  end.get();  // throws what the body threw
}

}  // namespace mkernel::test
