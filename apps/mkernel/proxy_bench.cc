#include "proxy_bench.h"

#include <algorithm>
#include <chrono>
#include <thread>
#include <vector>

#include "command/queue.h"
#include "core/watchdog.h"
#include "net_pair.h"
#include "operators/wait_limits.h"
#include "proxy/proxy.h"
#include "summary.h"
#include "two_ranks.h"

namespace mkernel::app {
namespace {

constexpr uint32_t kLog2Capacity = 10;  // as operators have it
constexpr int64_t kCommandsPerIteration = 20'000;
constexpr int64_t kWakesPerIteration = 20;
constexpr auto kIdlePerIteration = std::chrono::milliseconds(50);

double us_since(uint64_t start_ns) {
  return static_cast<double>(Watchdog::now_ns() - start_ns) * 1e-3;
}

/// A rank's queue, as kernels would hold it, and its proxy.
struct RankProxy {
  std::vector<CommandSlot> slots{size_t{1} << kLog2Capacity};
  ProducerWords producers;
  uint64_t tail = 0;
  CommandQueue queue{slots.data(), &producers, &tail, kLog2Capacity};
  std::unique_ptr<Proxy> proxy;
};

class TwoProxies {
 public:
  TwoProxies(std::unique_ptr<TwoRanks> ranks, const ClusterOptions& options)
      : ranks_(std::move(ranks)),
        dog_{&abort_, &claim_, &fault_, detail::wait_limits(options), 0} {}

  Status start(const ClusterOptions& options) {
    Result<Endpoints> endpoints = ranks_->connect("loopback", options);
    if (!endpoints) return endpoints.status();
    for (uint32_t rank = 0; rank < 2; ++rank) {
      Result<std::unique_ptr<Proxy>> proxy =
          Proxy::start({.rank = rank,
                        .num_ranks = 2,
                        .queue = proxies_[rank].queue,
                        .endpoint = std::move((*endpoints)[rank]),
                        .heap = &ranks_->heap(rank),
                        .abort = &abort_,
                        .limit_ns = dog_.limits.progress_ns});
      if (!proxy) return proxy.status();
      proxies_[rank].proxy = std::move(proxy).value();
    }
    return Status::ok();
  }

  /// Time of each command among many from rank 0 to rank 1; `cpu_us`: of its proxy's thread.
  Result<double> command_us(std::vector<double>& cpu_us) {
    const CommandQueue& queue = proxies_[0].queue;
    const double before_us = cpu_us_of(0);
    const uint64_t start_ns = Watchdog::now_ns();
    for (int64_t i = 0; i < kCommandsPerIteration; ++i)
      if (!push(kCommandBytes)) return error();
    const WaitSite site{Place::kQueueSpace, 1, 0};
    const auto completed = [&] { return static_cast<uint32_t>(queue.completed()); };
    if (!dog_.wait(site, epoch_, completed).ok) return error();
    const double us = us_since(start_ns);
    cpu_us.push_back((cpu_us_of(0) - before_us) / kCommandsPerIteration);
    return us / kCommandsPerIteration;
  }

  /// Time from the push of a command, when both proxies have been idle, until its flag is raised.
  /// `announced`: its proxy is told first, as by a launch.
  Result<double> wake_us(bool announced) {
    // Longer than proxies stay awake, and out of step with how long they sleep.
    std::this_thread::sleep_for(std::chrono::microseconds(3000 + 37 * (epoch_ % 100)));
    const uint64_t start_ns = Watchdog::now_ns();
    if (announced) proxies_[0].proxy->expect_commands();
    if (!push(0)) return error();
    while (!reached(load_acquire<Scope::kSys>(ranks_->flag(1, 0)), epoch_)) {
      if (dog_.aborted()) return error();
      std::this_thread::yield();  // the proxies may need this core
    }
    return us_since(start_ns);
  }

  /// Of a core, of the mean proxy that has nothing to do for this long.
  Result<double> idle_share(std::chrono::milliseconds time) {
    std::this_thread::sleep_for(std::chrono::milliseconds(5));
    const double before_us = cpu_us_of(0) + cpu_us_of(1);
    const uint64_t start_ns = Watchdog::now_ns();
    std::this_thread::sleep_for(time);
    return (cpu_us_of(0) + cpu_us_of(1) - before_us) / us_since(start_ns) / 2;
  }

 private:
  bool push(uint64_t bytes) {
    const uint64_t address =
        ranks_->address() + epoch_ % (kNetBytes / kCommandBytes) * kCommandBytes;
    return proxies_[0].queue.push({address, address, static_cast<uint32_t>(bytes), ++epoch_, 0, 1},
                                  dog_);
  }
  Status error() {
    const Status status = proxies_[0].proxy->stop();
    return status ? Status(Code::kTimeout, "the proxy did not complete a command") : status;
  }
  double cpu_us_of(uint32_t rank) {
    return static_cast<double>(proxies_[rank].proxy->cpu_ns().value_or(0)) * 1e-3;
  }

  const std::unique_ptr<TwoRanks> ranks_;
  uint32_t abort_ = 0, claim_ = 0;
  FaultRecord fault_{};
  const Watchdog dog_;
  uint32_t epoch_ = 0;  // of the last command, one for each
  RankProxy proxies_[2];
};

Result<std::unique_ptr<TwoProxies>> start_proxies(ClusterOptions options, LinkOrder order) {
  options.loopback.order = order;
  Result<std::unique_ptr<TwoRanks>> ranks = TwoRanks::create();
  if (!ranks) return ranks.status();
  auto proxies = std::make_unique<TwoProxies>(std::move(ranks).value(), options);
  MK_RETURN_IF_ERROR(proxies->start(options));
  return proxies;
}

/// Calls measure() so many times; the values in order of size.
template <class Measure>
Result<std::vector<double>> repeat(int64_t times, Measure&& measure) {
  std::vector<double> values;
  for (int64_t i = 0; i < times; ++i) {
    const Result<double> value = measure();
    if (!value) return value.status();
    values.push_back(value.value());
  }
  std::sort(values.begin(), values.end());
  return values;
}

}  // namespace

Result<ProxyFigures> measure_proxies(const ClusterOptions& options, int64_t iters) {
  ProxyFigures figures;
  for (const LinkOrder order : {LinkOrder::kInOrder, LinkOrder::kReordered}) {
    auto proxies = start_proxies(options, order);
    if (!proxies) return proxies.status();
    TwoProxies& p = **proxies;
    auto wakes = repeat(iters * kWakesPerIteration, [&] { return p.wake_us(false); });
    if (!wakes) return wakes.status();
    const bool in_order = order == LinkOrder::kInOrder;
    (in_order ? figures.seen_p50_us : figures.raised_p50_us) = quantile(*wakes, 0.5);
    (in_order ? figures.seen_p99_us : figures.raised_p99_us) = quantile(*wakes, 0.99);
    if (!in_order) continue;
    auto told = repeat(iters * kWakesPerIteration, [&] { return p.wake_us(true); });
    if (!told) return told.status();
    figures.told_p50_us = quantile(*told, 0.5);
    figures.told_p99_us = quantile(*told, 0.99);
    std::vector<double> cpu_us;
    auto commands = repeat(iters, [&] { return p.command_us(cpu_us); });
    if (!commands) return commands.status();
    figures.command_us = quantile(*commands, 0.5);
    figures.command_cpu_us = summarize("", std::move(cpu_us)).median_us;
    auto share = p.idle_share(iters * kIdlePerIteration);
    if (!share) return share.status();
    figures.idle_share = share.value();
  }
  return figures;
}

}  // namespace mkernel::app
