// bench: times a fused operator and its baselines in alternation, in one process. Every iteration
// starts from cold caches with all ranks held at a gate; per iteration the slowest rank counts.
#include <algorithm>
#include <chrono>
#include <cstdio>

#include "commands.h"
#include "progress.h"
#include "report.h"
#include "svg.h"

namespace mkernel::app {
namespace {

constexpr int64_t kWarmups = 3;

/// Something to time on all ranks.
struct Run {
  std::string name;
  std::function<Status(int rank, int set)> poison;
  std::function<Status(int set)> enqueue;
  std::vector<double> times_us;
};

Status prepare_rank(Session& session, int r) {
  RankCase& rank_case = session.rank_case(r);
  for (int set = 0; set < session.num_sets; ++set) {
    MK_RETURN_IF_ERROR(rank_case.fill(set, set));
    MK_RETURN_IF_ERROR(rank_case.poison(set));
  }
  MK_RETURN_IF_ERROR(
      session.cluster.rank(r).device->prepare_timing(session.cluster.rank(r).handle()));
  return session.cluster.rank(r).synchronize();
}

/// Errors: unavailable if a baseline that was asked for by its name cannot be had.
Result<Baselines> find_baselines(Session& session) {
  const std::string& wanted = session.arguments.baseline;
  if (wanted == "none") return Baselines{};
  if (session.cluster.in_processes())
    return Baselines{{}, {{wanted, "baselines run in one process"}}};
  Result<Baselines> found = session.op->baselines(session.cluster, session.cases, wanted);
  if (found && wanted != "all" && !found->left_out.empty())
    return Status(Code::kUnavailable, "--baseline " + wanted + ": " + found->left_out[0].why);
  return found;
}

std::vector<Run> list_runs(Session& session, const Baselines& baselines) {
  std::vector<Run> runs;
  const auto run_rank = [&session](int set) {
    return session.cluster.on_all_ranks(
        [&session, set](int r) { return session.rank_case(r).run(set); });
  };
  runs.push_back({"fused",
                  [&session](int r, int set) { return session.rank_case(r).poison(set); },
                  run_rank,
                  {}});
  for (const Baseline& baseline : baselines.list)
    runs.push_back({baseline.name, baseline.poison, baseline.enqueue, {}});
  return runs;
}

/// Enqueues one timed launch on all ranks, behind the gate.
Status enqueue_timed(Session& session, const Run& run, int set, StartGate* gate) {
  Cluster& cluster = session.cluster;
  MK_RETURN_IF_ERROR(cluster.on_all_ranks([&](int r) -> Status {
    MK_RETURN_IF_ERROR(run.poison(r, set));
    return cluster.rank(r).device->start(cluster.rank(r).handle(), gate);
  }));
  MK_RETURN_IF_ERROR(run.enqueue(set));
  return cluster.on_all_ranks(
      [&](int r) { return cluster.rank(r).device->stop(cluster.rank(r).handle()); });
}

/// Opens the gates of all processes of a host at one instant, of a clock that they share.
Status open_together(Session& session, StartGate& gate) {
  if (session.cluster.in_processes()) {
    using Clock = std::chrono::steady_clock;
    const auto nows = session.cluster.collect<int64_t>(
        [](int) -> Result<int64_t> { return Clock::now().time_since_epoch().count(); });
    if (!nows) return nows.status();
    constexpr auto kToTellAll = std::chrono::milliseconds(2);
    const Clock::duration last(*std::max_element(nows->begin(), nows->end()));
    while (Clock::now().time_since_epoch() < last + kToTellAll) {
    }
  }
  gate.open();
  return Status::ok();
}

/// One timed launch on all ranks: the time of the slowest.
Result<double> time_once(Session& session, const Run& run, int set, StartGate& gate, bool gated) {
  Cluster& cluster = session.cluster;
  const Status enqueued = enqueue_timed(session, run, set, gated ? &gate : nullptr);
  const Status opened = enqueued ? open_together(session, gate) : Status::ok();
  gate.open();  // also after a failure: what is enqueued must end
  MK_RETURN_IF_ERROR(enqueued);
  MK_RETURN_IF_ERROR(opened);
  const auto us = cluster.collect<double>([&](int r) -> Result<double> {
    MK_RETURN_IF_ERROR(cluster.rank(r).synchronize());
    return cluster.rank(r).device->elapsed_us();
  });
  if (!us) return us.status();
  return *std::max_element(us->begin(), us->end());
}

Status time_all(Session& session, std::vector<Run>& runs) {
  Result<std::unique_ptr<StartGate>> gate = create_gate(session.arguments.cluster.device);
  if (!gate) return gate.status();
  Progress progress("iteration", kWarmups + session.arguments.iters, session.arguments.reports());
  for (int64_t i = -kWarmups; i < session.arguments.iters; ++i) {
    const auto set = static_cast<int>(std::max<int64_t>(i, 0) % session.num_sets);
    // Backwards: the fused run comes last, so that its outputs are what the set holds.
    for (auto run = runs.rbegin(); run != runs.rend(); ++run) {
      // Ungated at first: what is loaded on first use may have to wait until the GPU is idle.
      const bool gated = i > -kWarmups;
      const Result<double> us = time_once(session, *run, set, *gate.value(), gated);
      if (!us) return us.status();
      if (i >= 0) run->times_us.push_back(us.value());
    }
    progress.advance();
  }
  return Status::ok();
}

/// Verifies the outputs of all sets, and what the baselines left in their last iteration.
Result<WorstError> verify_all(Session& session, const Baselines& baselines) {
  const auto last = static_cast<int>((session.arguments.iters - 1) % session.num_sets);
  WorstError worst;
  for (int set = 0; set < session.num_sets; ++set) {
    const Result<WorstError> found = verify_set(session, set, set, set == last);
    if (!found) return found.status();
    worst.merge(found.value());
  }
  for (const Baseline& baseline : baselines.list) {
    const auto of_rank = session.cluster.collect<WorstError>([&](int r) -> Result<WorstError> {
      const Result<Finding> found = baseline.verify(r, last);
      if (!found) return found.status();
      return WorstError{found.value(), r, last};
    });
    if (!of_rank) return of_rank.status();
    for (const WorstError& one : *of_rank) worst.merge(one);
  }
  return worst;
}

Floor find_floor(const Session& session, const std::vector<TimedRun>& runs) {
  const Arguments& a = session.arguments;
  Floor floor;
  if (session.num_gpus() == 0) return floor;  // nothing to compare the host's times with
  for (const TimedRun& run : runs) {
    const bool part = run.name == "gemm" || run.name == "comm";
    if (part && run.median_us > floor.us) floor = {run.median_us, run.name + " alone"};
  }
  const double network_us = session.op->network_floor_us(a.operands, a.cluster);
  if (network_us > floor.us) floor = {network_us, "the declared network link"};
  return floor;
}

}  // namespace

Result<bool> run_bench(const Arguments& arguments) {
  MK_RETURN_IF_ERROR(prepare_file("--json", arguments.json_file));
  MK_RETURN_IF_ERROR(prepare_file("--plot", arguments.plot_file));
  Result<Session> opened = open_session(arguments, arguments.iters);
  if (!opened) return opened.status();
  Session& session = opened.value();
  print_case(session);

  MK_RETURN_IF_ERROR(session.cluster.on_all_ranks([&](int r) { return prepare_rank(session, r); }));
  const Result<Baselines> baselines = find_baselines(session);
  if (!baselines) return baselines.status();
  std::vector<Run> runs = list_runs(session, baselines.value());
  MK_RETURN_IF_ERROR(time_all(session, runs));

  Report report;
  report.left_out = baselines.value().left_out;
  for (Run& run : runs) report.runs.push_back(summarize(run.name, std::move(run.times_us)));
  report.floor = find_floor(session, report.runs);
  const Result<WorstError> worst = verify_all(session, baselines.value());
  if (!worst) return worst.status();
  report.worst = worst.value();

  Result<std::vector<RankStatistics>> ranks = collect_statistics(session);
  if (!ranks) return ranks.status();
  report.ranks = std::move(ranks).value();

  print_runs(session, report);
  print_ranks(session, report);
  print_worst(report.worst);
  MK_RETURN_IF_ERROR(write_file(arguments.json_file, to_json(session, report)));
  MK_RETURN_IF_ERROR(write_file(arguments.plot_file, bar_chart(session.op->name, report.runs)));
  return report.worst.finding.worst.right();
}

}  // namespace mkernel::app
