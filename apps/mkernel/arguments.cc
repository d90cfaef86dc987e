#include "arguments.h"

#include <cstdio>
#include <fstream>
#include <functional>
#include <limits>
#include <map>
#include <vector>

#include <CLI/CLI.hpp>

#include "net_pair.h"
#include "number.h"
#include "operators.h"

namespace mkernel::app {
namespace {

constexpr int kMaxRanks = 1024;  // nodes, GPUs per node
constexpr int64_t kMaxIterations = 1'000'000;

/// A number read by our own strict parser: CLI11's would take "0x10", and round what is too large.
template <class T>
CLI::Option* add_whole(CLI::App& app, const std::string& name, T& value, WholeRange range,
                       const std::string& help) {
  const auto read = [name, &value, range](const std::string& text) {
    const Result<int64_t> number = parse_whole(name, text, range);
    if (!number) throw CLI::ValidationError(number.status().message());
    value = static_cast<T>(number.value());
  };
  return app.add_option_function<std::string>(name, read, help)->type_name("NUMBER");
}

void add_milliseconds(CLI::App& app, const std::string& name, int64_t& us,
                      const std::string& help) {
  const auto read = [name, &us](const std::string& text) {
    const Result<int64_t> ms = parse_whole(name, text, {1, 86'400'000});
    if (!ms) throw CLI::ValidationError(ms.status().message());
    us = 1000 * ms.value();
  };
  app.add_option_function<std::string>(name, read, help)->type_name("NUMBER");
}

void add_decimal(CLI::App& app, const std::string& name, double& value, const std::string& help) {
  const auto read = [name, &value](const std::string& text) {
    const Result<double> number = parse_non_negative(name, text);
    if (!number) throw CLI::ValidationError(number.status().message());
    value = number.value();
  };
  app.add_option_function<std::string>(name, read, help)->type_name("NUMBER");
}

template <class T>
void add_choice(CLI::App& app, const std::string& name, std::function<void(T)> set,
                const std::map<std::string, T>& choices, const std::string& help) {
  std::string allowed;
  for (const auto& [word, value] : choices) allowed += (allowed.empty() ? "" : " or ") + word;
  const auto read = [name, set, choices, allowed](const std::string& text) {
    const auto found = choices.find(text);
    if (found == choices.end())
      throw CLI::ValidationError(name + ": got '" + text + "', allowed is " + allowed);
    set(found->second);
  };
  app.add_option_function<std::string>(name, read, help)->type_name(allowed);
}

void add_operator(CLI::App& app, Arguments& a) {
  std::string names, summaries;
  for (const Operator& op : operators()) {
    names += (names.empty() ? "" : ", ") + std::string(op.name);
    summaries += std::string(summaries.empty() ? "" : "; ") + op.name + ": " + op.summary;
  }
  const auto read = [&a, names](const std::string& text) {
    if (find_operator(text) == nullptr)
      throw CLI::ValidationError("OP: got '" + text + "', allowed is " + names);
    a.op = text;
  };
  app.add_option_function<std::string>("OP", read, summaries)->type_name("")->required();
}

void add_cluster(CLI::App& app, Arguments& a) {
  const auto choose_device = [&a](DeviceKind kind) { a.device = kind; };
  const auto choose_order = [&a](LinkOrder order) { a.cluster.loopback.order = order; };
  add_whole(app, "--nodes", a.cluster.nodes, {1, kMaxRanks}, "nodes of the cluster (1)");
  add_whole(app, "--gpus", a.cluster.gpus, {1, kMaxRanks}, "ranks per node (1)");
  add_choice<DeviceKind>(app, "--device", choose_device,
                         {{"host", DeviceKind::kHost}, {"cuda", DeviceKind::kCuda}},
                         "what computes (cuda where there is a GPU)");
  app.add_option("--transport", a.cluster.transport, "between nodes (auto)")->type_name("NAME");
  app.add_option("--provider", a.cluster.libfabric.provider, "libfabric: as fi_info -p (the best)")
      ->type_name("NAME");
  app.add_option("--interface", a.cluster.libfabric.interface,
                 "libfabric: its name or address (the provider's first)")
      ->type_name("NAME");
  app.add_option("--devices", a.cluster.verbs.devices,
                 "verbs, efa: the NICs of a rank (the nearest)")
      ->type_name("NAME[,NAME...]")
      ->delimiter(',');
  app.add_flag_callback(
      "--log",
      [&a] {
        a.cluster.log = [](const auto& line) { std::fprintf(stderr, "%s\n", line.c_str()); };
      },
      "what the network goes on without goes to stderr");
  add_milliseconds(app, "--timeout-ms", a.cluster.timeout_us, "of a wait (10000)");
  add_milliseconds(app, "--contact-timeout-ms", a.cluster.contact_timeout_us,
                   "of a wait for a rank that may be late (60000)");
  add_decimal(app, "--link-gbs", a.cluster.loopback.link_gbs, "loopback: 1e9 bytes/s, 0: any (0)");
  add_decimal(app, "--link-us", a.cluster.loopback.link_us, "loopback: latency (0)");
  add_choice<LinkOrder>(app, "--link-order", choose_order,
                        {{"in-order", LinkOrder::kInOrder}, {"reordered", LinkOrder::kReordered}},
                        "loopback: order of delivery (in-order)");
  add_whole(app, "--link-seed", a.cluster.loopback.seed, {0, std::numeric_limits<int64_t>::max()},
            "loopback: of the reordering (1)");
}

/// Ranks in processes of their own: by a launcher, or started by hand.
struct ProcessArguments {
  RendezvousOptions options;
  int world = 0;  // 0: as the launcher says
  std::string secret_file;
};

void add_processes(CLI::App& app, ProcessArguments& p) {
  RendezvousOptions& o = p.options;
  add_whole(app, "--world", p.world, {1, 65536},
            "processes, one per rank, started by hand (as mpirun, torchrun or srun say)");
  add_whole(app, "--rank", o.rank, {0, 65535}, "of this process, with --world (0)");
  app.add_option("--rendezvous", o.address, "where rank 0 listens (as the launcher says)")
      ->type_name("HOST[:PORT]");
  app.add_option("--run-id", o.run_id, "tells runs apart (as the launcher says)")
      ->type_name("TEXT");
  app.add_option("--secret-file", p.secret_file, "only who has the same text in it may join")
      ->type_name("FILE");
  const auto set_limit = [&o](const std::string& text) {
    const Result<int64_t> ms = parse_whole("--join-timeout-ms", text, {1, 86'400'000});
    if (!ms) throw CLI::ValidationError(ms.status().message());
    o.join_timeout_us = 1000 * ms.value();
  };
  app.add_option_function<std::string>("--join-timeout-ms", set_limit,
                                       "for all processes to come (60000)")
      ->type_name("NUMBER");
}

Status read_secret(ProcessArguments& p) {
  if (p.secret_file.empty()) return Status::ok();
  std::ifstream file(p.secret_file);
  std::getline(file, p.options.secret);
  if (file && !p.options.secret.empty()) return Status::ok();
  return {Code::kInvalidArgument, "--secret-file: got '" + p.secret_file +
                                      "', allowed is a file whose first line is the secret"};
}

/// Whether the ranks are processes, and how this one finds the others.
Status choose_processes(Arguments& a, ProcessArguments& p, const CLI::App& command) {
  MK_RETURN_IF_ERROR(read_secret(p));
  if (p.world > 1) {
    p.options.world = static_cast<uint32_t>(p.world);
    if (p.options.rank >= p.options.world)
      return {Code::kInvalidArgument, "--rank: got " + std::to_string(p.options.rank) +
                                          ", allowed is 0 to " + std::to_string(p.world - 1)};
    a.rendezvous = p.options;
  } else {
    Result<std::optional<RendezvousOptions>> launched = rendezvous_of_launcher(p.options);
    if (!launched) return launched.status();
    a.rendezvous = std::move(launched.value());
  }
  if (!a.rendezvous) return Status::ok();
  // What was not said is as the hosts are.
  if (command.count("--nodes") == 0) a.cluster.nodes = 0;
  if (command.count("--gpus") == 0) a.cluster.gpus = 0;
  if (!a.reports()) a.json_file = a.plot_file = "";  // one process writes them
  return Status::ok();
}

/// What sums over ranks take besides.
void add_sum(CLI::App& app, CaseArguments& c) {
  add_choice<Partials>(
      app, "--partials", [&c](Partials partials) { c.partials = partials; },
      {{"16bit", Partials::k16Bit}, {"fp32", Partials::kFp32}},
      "sums: what ranks' parts travel in (16bit)");
  const auto set_alpha = [&c](const std::string& text) {
    const bool negative = text.starts_with('-');
    const Result<double> alpha = parse_non_negative("--alpha", negative ? text.substr(1) : text);
    if (!alpha) throw CLI::ValidationError(alpha.status().message());
    c.alpha = negative ? -alpha.value() : alpha.value();
  };
  app.add_option_function<std::string>("--alpha", set_alpha, "sums: factor (1)")
      ->type_name("NUMBER");
  app.add_flag("--bias", c.bias, "sums: add a row to every row");
  app.add_flag("--residual", c.residual, "sums: add a matrix");
  add_choice<Activation>(
      app, "--activation", [&c](Activation activation) { c.activation = activation; },
      {{"none", Activation::kNone},
       {"relu", Activation::kRelu},
       {"gelu", Activation::kGelu},
       {"silu", Activation::kSilu}},
      "sums: applied at last (none)");
  add_choice<Output>(
      app, "--out", [&c](Output output) { c.output = output; },
      {{"same", Output::kSame}, {"fp32", Output::kFp32}}, "sums: type of C (same)");
  add_whole(app, "--workspace-mib", c.workspace_mib, {0, 1 << 20},
            "sums: most work space per rank, 0: 256 (0)");
  add_whole(app, "--round-tiles", c.round_tiles, {0, kMaxExtent},
            "sums: tiles of each rank's rows in one go (0)");
}

void add_operands(CLI::App& app, CaseArguments& c) {
  const auto choose_dtype = [&c](DType dtype) { c.dtype = dtype; };
  const auto choose_layout = [&c](BLayout layout) { c.b_layout = layout; };
  add_whole(app, "--m", c.m, {0, kMaxExtent}, "rows of A over all ranks, or of the sum")
      ->required();
  add_whole(app, "--n", c.n, {1, kMaxExtent}, "columns of C")->required();
  add_whole(app, "--k", c.k, {1, kMaxExtent}, "columns of A: of a rank's, for a sum over ranks")
      ->required();
  add_choice<DType>(app, "--dtype", choose_dtype, {{"bf16", DType::kBf16}, {"fp16", DType::kFp16}},
                    "of all matrices (bf16)");
  add_choice<BLayout>(app, "--b-layout", choose_layout,
                      {{"kn", BLayout::kKN}, {"nk", BLayout::kNK}}, "how B lies in memory (kn)");
  app.add_flag("--gather-a", c.gather_a, "also hand out, and verify, the gathered A");
  add_whole(app, "--seed", c.seed, {0, std::numeric_limits<int64_t>::max()}, "of the inputs (1)");
  constexpr WholeRange kAny{0, kMaxExtent};
  add_whole(app, "--blocks", c.tuning.blocks, kAny, "blocks per rank, 0: the plan chooses (0)");
  add_whole(app, "--comm-blocks", c.tuning.comm_blocks, kAny, "of these, to move data first (0)");
  add_whole(app, "--chunk-rows", c.tuning.chunk_rows, kAny, "rows per message (0)");
  add_whole(app, "--tile-n", c.tuning.tile_n, kAny, "columns of an output tile (0)");
  const auto choose_push = [&c](Push push) { c.tuning.push = push; };
  add_choice<Push>(app, "--push", choose_push,
                   {{"auto", Push::kAuto}, {"blocks", Push::kBlocks}, {"engine", Push::kEngine}},
                   "who writes to the ranks of the node (auto)");
  add_sum(app, c);
}

/// Iterations where none were asked for.
int64_t default_iters(Command command) {
  switch (command) {
    case Command::kBench: return 20;
    case Command::kNetBench: return 10;
    default: return 1;
  }
}

void add_case(CLI::App& app, Arguments& a, ProcessArguments& p, Command command) {
  add_operator(app, a);
  add_operands(app, a.operands);
  add_cluster(app, a);
  add_processes(app, p);
  const std::string help = "iterations (" + std::to_string(default_iters(command)) + ")";
  add_whole(app, "--iters", a.iters, {1, kMaxIterations}, help);
  app.add_option("--json", a.json_file, "write the results there")->type_name("FILE");
  app.add_flag("--stats", a.stats, "also what the proxies between ranks and network did");
}

void add_net_bench(CLI::App& app, Arguments& a) {
  const auto split = [&a](const std::string& names) {
    a.net.transports.clear();
    for (size_t begin = 0, end = 0; end != std::string::npos; begin = end + 1) {
      end = names.find(',', begin);
      a.net.transports.push_back(names.substr(begin, end - begin));
    }
  };
  app.add_option_function<std::string>("--transport", split, "what to measure (loopback)")
      ->type_name("NAME[,NAME...]");
  constexpr WholeRange kBytes{1, kNetBytes};
  add_whole(app, "--min-bytes", a.net.min_bytes, kBytes, "smallest chunk (4096)");
  add_whole(app, "--max-bytes", a.net.max_bytes, kBytes, "largest, doubling from there (4194304)");
  add_whole(app, "--depth", a.net.depth, {1, 65536}, "chunks on their way at once (64)");
  add_whole(app, "--iters", a.iters, {1, kMaxIterations}, "iterations per size (10)");
  add_milliseconds(app, "--timeout-ms", a.cluster.timeout_us, "of a silent network (10000)");
  app.add_option("--json", a.json_file, "write the results there")->type_name("FILE");
}

/// Joins "--m" and "-5": CLI11 would take the negative number for an option, and not name it.
std::vector<std::string> join_negative_values(int argc, char** argv) {
  std::vector<std::string> joined;
  for (int i = 1; i < argc; ++i) {
    const std::string word = argv[i];
    const bool negative = word.starts_with('-') && word.find_first_of("0123456789.") == 1;
    if (negative && !joined.empty() && joined.back().starts_with("--"))
      joined.back() += "=" + word;
    else
      joined.push_back(word);
  }
  return {joined.rbegin(), joined.rend()};  // the order in which CLI11 wants them
}

}  // namespace

Result<Arguments> parse_arguments(int argc, char** argv) {
  Arguments a;
  ProcessArguments processes;
  CLI::App app(
      "Fused compute and communication operators: what this machine has, whether they are "
      "right, how fast they are.",
      "mkernel");
  app.require_subcommand(1);
  CLI::App* info = app.add_subcommand("info", "what was found, and what will be used");
  info->add_flag("--json", a.print_json, "as one JSON object");
  CLI::App* check = app.add_subcommand("check", "run an operator and verify every element");
  add_case(*check, a, processes, Command::kCheck);
  check->add_option("--dump", a.dump_dir, "write the last iteration's arrays there as .npy")
      ->type_name("DIR");
  CLI::App* bench = app.add_subcommand("bench", "time an operator beside its baselines");
  add_case(*bench, a, processes, Command::kBench);
  add_choice<std::string>(
      *bench, "--baseline", [&a](const std::string& name) { a.baseline = name; },
      {{"all", "all"},
       {"comm", "comm"},
       {"gemm", "gemm"},
       {"in_turn", "in_turn"},
       {"in_turn_chunked", "in_turn_chunked"},
       {"none", "none"}},
      "what to time beside it (all)");
  bench->add_option("--plot", a.plot_file, "draw the results there")->type_name("FILE.svg");
  CLI::App* net_bench = app.add_subcommand("net-bench", "time transports beside plain sockets");
  add_net_bench(*net_bench, a);
  const std::map<std::string, Command> commands{{"info", Command::kInfo},
                                                {"check", Command::kCheck},
                                                {"bench", Command::kBench},
                                                {"net-bench", Command::kNetBench}};
  const std::string command = argc > 1 ? argv[1] : "";
  if (!command.starts_with('-') && !commands.contains(command))
    return Status(Code::kInvalidArgument,
                  "command: got '" + command + "', allowed are info, check, bench and net-bench");
  try {
    app.parse(join_negative_values(argc, argv));
  } catch (const CLI::CallForHelp&) {
    a.command = Command::kHelp;
    a.help = app.help();
    return a;
  } catch (const CLI::ParseError& error) {
    return Status(Code::kInvalidArgument, error.what());
  }
  a.command = commands.at(app.get_subcommands()[0]->get_name());
  if (a.iters == 0) a.iters = default_iters(a.command);
  if (check->parsed() || bench->parsed())
    MK_RETURN_IF_ERROR(choose_processes(a, processes, *app.get_subcommands()[0]));
  return a;
}

const char* name_of(DType dtype) { return dtype == DType::kBf16 ? "bf16" : "fp16"; }
const char* name_of(BLayout layout) { return layout == BLayout::kKN ? "kn" : "nk"; }
const char* name_of(DeviceKind device) { return device == DeviceKind::kHost ? "host" : "cuda"; }
const char* name_of(Push push) {
  switch (push) {
    case Push::kAuto: break;
    case Push::kBlocks: return "blocks";
    case Push::kEngine: return "engine";
  }
  return "auto";
}

const char* name_of(Partials partials) { return partials == Partials::kFp32 ? "fp32" : "16bit"; }
const char* name_of(Output output) { return output == Output::kFp32 ? "fp32" : "same"; }
const char* name_of(Activation activation) {
  switch (activation) {
    case Activation::kNone: break;
    case Activation::kRelu: return "relu";
    case Activation::kGelu: return "gelu";
    case Activation::kSilu: return "silu";
  }
  return "none";
}

const char* name_of(LinkOrder order) {
  return order == LinkOrder::kInOrder ? "in-order" : "reordered";
}

}  // namespace mkernel::app
