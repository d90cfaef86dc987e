// net-bench: transports by themselves, beside plain sockets: how much goes through, how long a
// chunk takes, and what a proxy adds. No operator, no GPU.
#include <cinttypes>
#include <cstdio>

#include <nlohmann/json.hpp>

#include "build_info.h"
#include "commands.h"
#include "machine.h"
#include "net_pair.h"
#include "progress.h"
#include "proxy_bench.h"
#include "report.h"
#include "summary.h"

namespace mkernel::app {
namespace {

using Json = nlohmann::ordered_json;

constexpr uint64_t kStreamBytes = uint64_t{32} << 20;  // of one iteration, more or less
constexpr uint64_t kMinChunks = 16, kMaxChunks = 4096;
constexpr int64_t kPings = 50;  // of one iteration

/// Of one size over one network; medians.
struct NetFigures {
  double gbs = 0;  // 1e9 bytes/s
  double latency_us = 0;
};

/// One network and what was measured of it, by size.
struct Network {
  std::string name;
  std::unique_ptr<NetPair> pair;
  std::vector<NetFigures> figures;
};

std::vector<uint64_t> sizes_of(const Arguments& a) {
  std::vector<uint64_t> sizes;
  for (uint64_t bytes = a.net.min_bytes; bytes <= a.net.max_bytes; bytes *= 2)
    sizes.push_back(bytes);
  return sizes;
}

Status check_arguments(const Arguments& a) {
  if (a.net.min_bytes > a.net.max_bytes)
    return {Code::kInvalidArgument, "--min-bytes: got '" + std::to_string(a.net.min_bytes) +
                                        "', allowed is at most --max-bytes, which is " +
                                        std::to_string(a.net.max_bytes)};
  for (const std::string& name : a.net.transports) {
    if (name == "auto" || name.empty())
      return {Code::kInvalidArgument, "--transport: got '" + name + "', allowed are names"};
    MK_RETURN_IF_ERROR(check_transport(name, a.cluster));
  }
  return Status::ok();
}

Result<NetFigures> measure(NetPair& pair, uint64_t bytes, const Arguments& a) {
  const auto chunks = std::clamp(kStreamBytes / bytes, kMinChunks, kMaxChunks);
  const NetCase stream{bytes, static_cast<int64_t>(chunks), a.net.depth};
  const NetCase ping{bytes, kPings, a.net.depth};
  std::vector<double> gbs, latencies;
  for (int64_t i = -1; i < a.iters; ++i) {  // the first one warms up
    const Result<double> us = pair.stream_us(stream);
    if (!us) return us.status();
    if (!pair.take_arrived(stream)) return Status(Code::kInternal, "other bytes came than went");
    const Result<std::vector<double>> each = pair.latencies_us(ping);
    if (!each) return each.status();
    if (!pair.take_arrived(ping)) return Status(Code::kInternal, "other bytes came than went");
    if (i < 0) continue;
    gbs.push_back(static_cast<double>(bytes * chunks) / us.value() * 1e-3);
    latencies.insert(latencies.end(), each.value().begin(), each.value().end());
  }
  return NetFigures{summarize("", std::move(gbs)).median_us,
                    summarize("", std::move(latencies)).median_us};
}

/// The sockets first, then the transports.
Result<std::vector<Network>> connect_networks(const Arguments& a) {
  std::vector<Network> networks;
  Result<std::unique_ptr<NetPair>> tcp = create_tcp_pair(a.cluster);
  if (!tcp) return tcp.status();
  networks.push_back({"tcp", std::move(tcp).value(), {}});
  for (const std::string& name : a.net.transports) {
    Result<std::unique_ptr<NetPair>> pair = create_transport_pair(name, a.cluster);
    if (!pair) return pair.status();
    networks.push_back({name, std::move(pair).value(), {}});
  }
  return networks;
}

Status measure_all(const Arguments& a, std::vector<Network>& networks) {
  const std::vector<uint64_t> sizes = sizes_of(a);
  Progress progress("size", static_cast<int64_t>(sizes.size() * networks.size()));
  for (const uint64_t bytes : sizes) {
    for (Network& network : networks) {
      const Result<NetFigures> figures = measure(*network.pair, bytes, a);
      if (!figures)
        return {figures.status().code(), network.name + ", chunks of " + std::to_string(bytes) +
                                             " bytes: " + figures.status().message()};
      network.figures.push_back(figures.value());
      progress.advance();
    }
  }
  return Status::ok();
}

/// What a queue and a proxy add to a chunk of the loopback.
struct ProxyReport {
  ProxyFigures figures;
  double alone_us = 0;  // per chunk of kCommandBytes, without them
};

Result<ProxyReport> measure_proxy_report(const Arguments& a) {
  const Result<ProxyFigures> figures = measure_proxies(a.cluster, a.iters);
  if (!figures) return figures.status();
  const Result<std::unique_ptr<NetPair>> pair = create_transport_pair("loopback", a.cluster);
  if (!pair) return pair.status();
  const Result<NetFigures> alone = measure(*pair.value(), kCommandBytes, a);
  if (!alone) return alone.status();
  return ProxyReport{figures.value(),
                     static_cast<double>(kCommandBytes) / alone.value().gbs * 1e-3};
}

void print(const Arguments& a, const std::vector<Network>& networks, const ProxyReport& proxy) {
  const std::vector<uint64_t> sizes = sizes_of(a);
  const Network& tcp = networks[0];
  std::printf("%-12s %10s %10s %10s %8s %12s %12s %8s\n", "transport", "bytes", "GB/s", "tcp GB/s",
              "ratio", "latency us", "tcp us", "ratio");
  for (size_t n = 1; n < networks.size(); ++n) {
    for (size_t i = 0; i < sizes.size(); ++i) {
      const NetFigures& own = networks[n].figures[i];
      const NetFigures& other = tcp.figures[i];
      std::printf("%-12s %10" PRIu64 " %10.3f %10.3f %8.2f %12.2f %12.2f %8.2f\n",
                  networks[n].name.c_str(), sizes[i], own.gbs, other.gbs, own.gbs / other.gbs,
                  own.latency_us, other.latency_us, own.latency_us / other.latency_us);
    }
  }
  const ProxyFigures& p = proxy.figures;
  std::printf("queue and proxy, on loopback: %.3f us per command of %" PRIu64
              " bytes (%.3f us of it the proxy's processor time), the network alone %.3f us\n",
              p.command_us, kCommandBytes, p.command_cpu_us, proxy.alone_us);
  std::printf(
      "idle proxy: %.2f %% of a core; first command seen after p50 %.1f, p99 %.1f us, if "
      "announced by a launch %.1f, %.1f us; its flag raised by an idle peer after p50 %.1f, p99 "
      "%.1f us\n",
      100 * p.idle_share, p.seen_p50_us, p.seen_p99_us, p.told_p50_us, p.told_p99_us,
      p.raised_p50_us, p.raised_p99_us);
}

Json json_of_network(const Arguments& a, const Network& network, const Network& tcp) {
  const std::vector<uint64_t> sizes = sizes_of(a);
  Json list = Json::array();
  for (size_t i = 0; i < sizes.size(); ++i) {
    const NetFigures& own = network.figures[i];
    const NetFigures& other = tcp.figures[i];
    list.push_back({{"bytes", sizes[i]},
                    {"gbs", own.gbs},
                    {"tcp_gbs", other.gbs},
                    {"gbs_ratio", own.gbs / other.gbs},
                    {"latency_us", own.latency_us},
                    {"tcp_latency_us", other.latency_us},
                    {"latency_ratio", own.latency_us / other.latency_us}});
  }
  return {{"name", network.name}, {"sizes", list}};
}

std::string to_json(const Arguments& a, const std::vector<Network>& networks,
                    const ProxyReport& proxy) {
  Json json;
  json["commit"] = MKERNEL_COMMIT;
  json["device"] = "host";
  json["op"] = "net-bench";
  json["args"] = {{"min_bytes", a.net.min_bytes},
                  {"max_bytes", a.net.max_bytes},
                  {"iters", a.iters},
                  {"depth", a.net.depth}};
  json["transports"] = Json::array();
  for (size_t n = 1; n < networks.size(); ++n)
    json["transports"].push_back(json_of_network(a, networks[n], networks[0]));
  const ProxyFigures& p = proxy.figures;
  json["proxy"] = {{"bytes", kCommandBytes},
                   {"command_us", p.command_us},
                   {"command_cpu_us", p.command_cpu_us},
                   {"network_alone_us", proxy.alone_us},
                   {"idle_share", p.idle_share},
                   {"seen_p50_us", p.seen_p50_us},
                   {"seen_p99_us", p.seen_p99_us},
                   {"told_p50_us", p.told_p50_us},
                   {"told_p99_us", p.told_p99_us},
                   {"raised_p50_us", p.raised_p50_us},
                   {"raised_p99_us", p.raised_p99_us}};
  json["right"] = true;  // what is not ends the command
  return json.dump(2) + "\n";
}

}  // namespace

Status run_net_bench(const Arguments& arguments) {
  MK_RETURN_IF_ERROR(check_arguments(arguments));
  MK_RETURN_IF_ERROR(prepare_file("--json", arguments.json_file));
  Result<std::vector<Network>> networks = connect_networks(arguments);
  if (!networks) return networks.status();
  MK_RETURN_IF_ERROR(measure_all(arguments, networks.value()));
  const Result<ProxyReport> proxy = measure_proxy_report(arguments);
  if (!proxy) return proxy.status();
  print(arguments, networks.value(), proxy.value());
  return write_file(arguments.json_file, to_json(arguments, networks.value(), proxy.value()));
}

}  // namespace mkernel::app
