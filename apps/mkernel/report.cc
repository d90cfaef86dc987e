#include "report.h"

#include <cinttypes>
#include <cstdio>
#include <fstream>

#include <nlohmann/json.hpp>

#include "build_info.h"

namespace mkernel::app {
namespace {

using Json = nlohmann::ordered_json;

bool on_host(const Session& s) { return s.arguments.cluster.device == DeviceKind::kHost; }

Json or_null(bool known, double value) { return known ? Json(value) : Json(nullptr); }

/// JSON has no NaN and no infinity, and a wrong result may be either: they become words.
Json number_or_word(double value) {
  if (std::isfinite(value)) return value;
  return std::isnan(value) ? "nan" : value > 0 ? "inf" : "-inf";
}

Json json_of_worst(const WorstError& worst) {
  const Worst& w = worst.finding.worst;
  if (w.none()) return nullptr;
  return {{"share", number_or_word(w.share)},
          {"array", worst.finding.array},
          {"rank", worst.rank},
          {"row", w.row},
          {"column", w.col},
          {"iteration", worst.iteration},
          {"got", number_or_word(w.got)},
          {"want", number_or_word(w.want)}};
}

Json json_of_arguments(const Arguments& a) {
  const CaseArguments& c = a.operands;
  return {{"m", c.m},
          {"n", c.n},
          {"k", c.k},
          {"dtype", name_of(c.dtype)},
          {"b_layout", name_of(c.b_layout)},
          {"gather_a", c.gather_a},
          {"seed", c.seed},
          {"iters", a.iters},
          {"timeout_ms", a.cluster.timeout_us / 1000},
          {"contact_timeout_ms", a.cluster.contact_timeout_us / 1000},
          {"blocks", c.tuning.blocks},
          {"comm_blocks", c.tuning.comm_blocks},
          {"chunk_rows", c.tuning.chunk_rows},
          {"tile_n", c.tuning.tile_n},
          {"push", name_of(c.tuning.push)},
          {"partials", name_of(c.partials)},
          {"alpha", c.alpha},
          {"bias", c.bias},
          {"residual", c.residual},
          {"activation", name_of(c.activation)},
          {"out", name_of(c.output)},
          {"workspace_mib", c.workspace_mib},
          {"round_tiles", c.round_tiles},
          {"link_gbs", a.cluster.loopback.link_gbs},
          {"link_us", a.cluster.loopback.link_us},
          {"link_order", name_of(a.cluster.loopback.order)},
          {"link_seed", a.cluster.loopback.seed}};
}

Json json_of_runs(const Session& session, const std::vector<TimedRun>& runs) {
  Json list = Json::array();
  for (const TimedRun& run : runs) {
    list.push_back(
        {{"name", run.name},
         {"median_us", run.median_us},
         {"p10_us", run.p10_us},
         {"p90_us", run.p90_us},
         {"fused_ratio",
          run.median_us > 0 ? Json(runs[0].median_us / run.median_us) : Json(nullptr)},
         {"tflops_per_gpu", or_null(!on_host(session), tflops_per_gpu(session, run.median_us))}});
  }
  return list;
}

Json json_of_ranks(const std::vector<RankStatistics>& ranks) {
  Json list = Json::array();
  for (const RankStatistics& s : ranks) {
    list.push_back({{"rank", list.size()},
                    {"launches", s.launches},
                    {"tiles", s.tiles},
                    {"local_bytes", s.local_bytes},
                    {"network_bytes", s.network_bytes},
                    {"waits", s.waits}});
  }
  return list;
}

Json json_of_proxies(const std::vector<RankStatistics>& ranks) {
  Json list = Json::array();
  for (const RankStatistics& s : ranks) {
    const ProxyTotals& p = s.proxy;
    list.push_back({{"rank", list.size()},
                    {"commands", p.commands},
                    {"bytes", p.bytes},
                    {"batches", p.batches},
                    {"partial_batches", p.partial_batches},
                    {"room_waits", p.room_waits},
                    {"retries", p.retries},
                    {"arrivals", p.arrivals},
                    {"stale_arrivals", p.stale_arrivals}});
  }
  return list;
}

bool wants_proxies(const Session& s) { return s.arguments.stats && s.arguments.cluster.nodes > 1; }

void print_proxies(const Report& report) {
  std::printf("%6s %10s %18s %10s %10s %10s %10s %10s %10s\n", "proxy", "commands", "bytes",
              "batches", "partial", "waits", "retries", "arrivals", "stale");
  for (size_t r = 0; r < report.ranks.size(); ++r) {
    const ProxyTotals& p = report.ranks[r].proxy;
    std::printf("%6zu %10" PRIu64 " %18" PRIu64 " %10" PRIu64 " %10" PRIu64 " %10" PRIu64
                " %10" PRIu64 " %10" PRIu64 " %10" PRIu64 "\n",
                r, p.commands, p.bytes, p.batches, p.partial_batches, p.room_waits, p.retries,
                p.arrivals, p.stale_arrivals);
  }
}

}  // namespace

double tflops_per_gpu(const Session& session, double us) {
  const double flops = session.op->flops_per_rank(session.arguments.operands) *
                       static_cast<double>(session.cases.size());
  return on_host(session) || us <= 0 ? 0 : flops / session.num_gpus() / us * 1e-6;
}

void print_case(Session& session) {
  const Arguments& a = session.arguments;
  const CaseArguments& c = a.operands;
  std::printf("%s: m %" PRId64 ", n %" PRId64 ", k %" PRId64 ", %s, b %s\n", session.op->name, c.m,
              c.n, c.k, name_of(c.dtype), name_of(c.b_layout));
  const std::string device = on_host(session) ? "host machine" : session.machine.gpus[0].name;
  std::printf("cluster: %d x %d ranks on %s, transport %s\n", a.cluster.nodes, a.cluster.gpus,
              device.c_str(),
              session.cluster.rank(session.cluster.first_here()).context.transport().c_str());
  std::printf("plan: %s\n", session.rank_case(session.cluster.first_here()).plan().c_str());
}

Result<std::vector<RankStatistics>> collect_statistics(Session& session) {
  return session.cluster.collect<RankStatistics>(
      [&](int r) { return session.cluster.rank(r).context.statistics(); });
}

void print_ranks(const Session& session, const Report& report) {
  std::printf("%6s %10s %12s %18s %18s %10s\n", "rank", "launches", "tiles", "local bytes",
              "network bytes", "waits");
  for (size_t r = 0; r < report.ranks.size(); ++r) {
    const RankStatistics& s = report.ranks[r];
    std::printf("%6zu %10" PRIu64 " %12" PRIu64 " %18" PRIu64 " %18" PRIu64 " %10" PRIu64 "\n", r,
                s.launches, s.tiles, s.local_bytes, s.network_bytes, s.waits);
  }
  if (wants_proxies(session)) print_proxies(report);
  if (session.arguments.stats && !wants_proxies(session))
    std::printf("proxies: none, there is one node\n");
  if (on_host(session)) std::printf("host machine: times here mean nothing\n");
}

void print_worst(const WorstError& worst) {
  const Worst& w = worst.finding.worst;
  if (w.none()) {
    std::printf("right: there was no element to compare\n");
    return;
  }
  std::printf("%s: worst error is %.3g of its bound, %s at rank %d, row %" PRId64
              ", column %" PRId64 ", iteration %" PRId64 ": got %.9g, want %.9g\n",
              w.right() ? "right" : "WRONG", w.share, worst.finding.array, worst.rank, w.row, w.col,
              worst.iteration, w.got, w.want);
}

void print_runs(const Session& session, const Report& report) {
  std::printf("%-18s %12s %12s %12s %14s\n", "run", "median us", "p10 us", "p90 us",
              "TFLOP/s per GPU");
  for (const TimedRun& run : report.runs) {
    std::printf("%-18s %12.1f %12.1f %12.1f", run.name.c_str(), run.median_us, run.p10_us,
                run.p90_us);
    if (on_host(session))
      std::printf(" %14s\n", "-");
    else
      std::printf(" %14.1f\n", tflops_per_gpu(session, run.median_us));
  }
  for (const LeftOut& one : report.left_out)
    std::printf("%s: left out: %s\n", one.name.c_str(), one.why.c_str());
  if (report.floor.us > 0)
    std::printf("floor: %.1f us (%s)\n", report.floor.us, report.floor.is.c_str());
}

std::string to_json(Session& session, const Report& report) {
  const Arguments& a = session.arguments;
  const bool host = on_host(session);
  const bool floored = report.floor.us > 0 && !report.runs.empty();
  Json json;
  json["commit"] = MKERNEL_COMMIT;
  json["device"] = host ? "host" : session.machine.gpus[0].name;
  json["driver"] = session.machine.driver.empty() ? Json(nullptr) : Json(session.machine.driver);
  json["op"] = session.op->name;
  json["args"] = json_of_arguments(a);
  json["cluster"] = {{"nodes", a.cluster.nodes},
                     {"gpus", a.cluster.gpus},
                     {"ranks", session.cluster.size()},
                     {"devices", session.num_gpus()}};
  json["transport"] = session.cluster.rank(session.cluster.first_here()).context.transport();
  json["plan"] = session.rank_case(session.cluster.first_here()).plan();
  json["clocks"] = host ? Json(nullptr) : Json{{"sm_max_mhz", session.machine.gpus[0].max_sm_mhz}};
  json["runs"] = json_of_runs(session, report.runs);
  json["left_out"] = Json::array();
  for (const LeftOut& one : report.left_out)
    json["left_out"].push_back({{"name", one.name}, {"why", one.why}});
  json["floor_us"] = or_null(floored, report.floor.us);
  json["floor_is"] = floored ? Json(report.floor.is) : Json(nullptr);
  json["ratio_to_floor"] =
      floored ? Json(report.runs[0].median_us / report.floor.us) : Json(nullptr);
  json["worst_error"] = json_of_worst(report.worst);
  json["right"] = report.worst.finding.worst.right();
  json["ranks"] = json_of_ranks(report.ranks);
  if (session.arguments.stats)
    json["proxies"] = wants_proxies(session) ? json_of_proxies(report.ranks) : Json::array();
  return json.dump(2) + "\n";
}

Status prepare_file(const std::string& option, const std::string& path) {
  // Opened for appending: what is there stays until there is something new to put in its place.
  if (path.empty() || std::ofstream(path, std::ios::app)) return Status::ok();
  return {Code::kInvalidArgument,
          option + ": got '" + path + "', allowed is a file that can be written"};
}

Status write_file(const std::string& path, const std::string& text) {
  if (path.empty()) return Status::ok();
  std::ofstream file(path);
  file << text << std::flush;
  if (!file) return {Code::kInternal, "cannot write " + path};
  return Status::ok();
}

}  // namespace mkernel::app
