#include "session.h"

#include <unistd.h>

#include <algorithm>
#include <cstdio>

namespace mkernel::app {
namespace {

constexpr double kUsableShare = 0.8;  // of memory: the rest is for what we do not count

/// Memory that one rank may fill.
double memory_per_rank(const Session& session) {
  const auto& processes = session.arguments.rendezvous;
  const int num_ranks = processes
                            ? static_cast<int>(processes->world)
                            : session.arguments.cluster.nodes * session.arguments.cluster.gpus;
  if (session.arguments.cluster.device == DeviceKind::kHost) {
    return kUsableShare * static_cast<double>(sysconf(_SC_PHYS_PAGES)) *
           static_cast<double>(sysconf(_SC_PAGESIZE)) / num_ranks;
  }
  const int sharing = (num_ranks + session.num_gpus() - 1) / session.num_gpus();
  return kUsableShare * static_cast<double>(session.machine.gpus[0].memory_bytes) / sharing;
}

Status choose_num_sets(Session& session, int64_t max_sets) {
  const Arguments& a = session.arguments;
  const double available = memory_per_rank(session);
  ClusterOptions cluster = a.cluster;
  if (a.rendezvous) {  // whose layout is not known yet
    cluster.nodes = 1;
    cluster.gpus = static_cast<int>(a.rendezvous->world);
  }
  double fixed = session.op->fixed_bytes(a.operands, cluster);
  if (a.command == Command::kBench && a.baseline != "none")
    fixed += session.op->baseline_bytes(a.operands, cluster);
  const double set = session.op->set_bytes(a.operands, cluster);
  if (fixed + set > available) {
    char message[128];
    std::snprintf(message, sizeof message,
                  "the case needs %.1f GiB per rank, this machine has %.1f GiB for each",
                  (fixed + set) / 0x1p30, available / 0x1p30);
    return {Code::kUnavailable, message};
  }
  session.num_sets =
      static_cast<int>(std::min(static_cast<double>(max_sets), (available - fixed) / set));
  return Status::ok();
}

}  // namespace

int Session::num_gpus() const {
  if (arguments.cluster.device == DeviceKind::kHost) return 0;
  if (arguments.rendezvous) return static_cast<int>(arguments.rendezvous->world);  // one each
  return std::min(arguments.cluster.nodes * arguments.cluster.gpus,
                  static_cast<int>(machine.gpus.size()));
}

Result<Session> open_session(const Arguments& arguments, int64_t max_sets) {
  Session session;
  session.arguments = arguments;
  session.machine = find_machine();
  session.op = find_operator(arguments.op);
  const DeviceKind* asked = arguments.device ? &*arguments.device : nullptr;
  const Result<DeviceKind> device = choose_device(session.machine, asked);
  if (!device) return device.status();
  session.arguments.cluster.device = device.value();
  MK_RETURN_IF_ERROR(check_transport(arguments.cluster.transport, arguments.cluster));
  MK_RETURN_IF_ERROR(choose_num_sets(session, max_sets));

  Result<Cluster> cluster = Cluster::create(session.arguments.cluster, arguments.rendezvous);
  if (!cluster) return cluster.status();
  session.cluster = std::move(cluster).value();
  const Context& context = session.cluster.rank(session.cluster.first_here()).context;
  session.arguments.cluster.nodes = context.nodes();
  session.arguments.cluster.gpus = context.gpus();
  for (int r = 0; r < session.cluster.size(); ++r)
    session.cases.push_back(session.cluster.is_here(r)
                                ? session.op->make(session.cluster.rank(r), arguments.operands)
                                : nullptr);
  MK_RETURN_IF_ERROR(session.cluster.on_all_ranks(
      [&](int r) { return session.rank_case(r).prepare(session.num_sets); }));
  return session;
}

Result<WorstError> verify_set(Session& session, int set, int64_t iteration, bool plan_too) {
  const auto worst = session.cluster.collect<WorstError>([&](int r) -> Result<WorstError> {
    RankCase& rank_case = session.rank_case(r);
    Result<Finding> outputs = rank_case.verify(set, iteration);
    if (!outputs) return outputs.status();
    WorstError found{outputs.value(), r, iteration};
    if (!plan_too) return found;
    Result<Finding> held = rank_case.verify_plan(iteration);
    if (!held) return held.status();
    found.merge({held.value(), r, iteration});
    return found;
  });
  if (!worst) return worst.status();
  WorstError all;
  for (const WorstError& w : *worst) all.merge(w);
  return all;
}

}  // namespace mkernel::app
