// check: run an operator on a virtual cluster and compare every element of every iteration.
#include <cstdio>
#include <filesystem>

#include "commands.h"
#include "npy.h"
#include "progress.h"
#include "report.h"

namespace mkernel::app {
namespace {

Status prepare_dump(const std::string& directory) {
  if (directory.empty()) return Status::ok();
  std::error_code error;
  std::filesystem::create_directories(directory, error);
  if (!error && std::filesystem::is_directory(directory)) return Status::ok();
  return {Code::kInvalidArgument,
          "--dump: got '" + directory + "', allowed is a directory that exists or can be made"};
}

template <class Element>
Status download(Context& context, const Matrix& matrix, std::vector<Element>& elements) {
  if (elements.empty()) return Status::ok();
  return context.download(elements.data(), matrix.data, elements.size() * sizeof(Element));
}

Status dump_matrix(Context& context, const std::string& path, const NamedMatrix& array) {
  const int64_t rows = array.matrix.rows;
  const int64_t cols = array.matrix.cols;
  if (array.fp32) {
    std::vector<float> floats(static_cast<size_t>(rows * cols));
    MK_RETURN_IF_ERROR(download(context, array.matrix, floats));
    return write_npy(path, rows, cols, floats);
  }
  std::vector<uint16_t> elements(static_cast<size_t>(rows * cols));
  MK_RETURN_IF_ERROR(download(context, array.matrix, elements));
  if (!array.transposed) return write_npy(path, rows, cols, elements);
  std::vector<uint16_t> turned(elements.size());
  for (int64_t i = 0; i < rows; ++i)
    for (int64_t j = 0; j < cols; ++j)
      turned[static_cast<size_t>(j * rows + i)] = elements[static_cast<size_t>(i * cols + j)];
  return write_npy(path, cols, rows, turned);
}

Status dump(Session& session) {
  const std::string& directory = session.arguments.dump_dir;
  if (directory.empty()) return Status::ok();
  return session.cluster.on_all_ranks([&](int r) -> Status {
    for (const NamedMatrix& array : session.rank_case(r).arrays(0)) {
      const std::string path = directory + "/rank" + std::to_string(r) + "_" + array.name + ".npy";
      MK_RETURN_IF_ERROR(dump_matrix(session.cluster.rank(r).context, path, array));
    }
    return Status::ok();
  });
}

Result<WorstError> check_iteration(Session& session, int64_t iteration) {
  Cluster& cluster = session.cluster;
  const Status filled = cluster.on_all_ranks([&](int r) -> Status {
    MK_RETURN_IF_ERROR(session.rank_case(r).fill(0, iteration));
    MK_RETURN_IF_ERROR(session.rank_case(r).poison(0));
    return cluster.rank(r).synchronize();
  });
  MK_RETURN_IF_ERROR(filled);
  const Status ran = cluster.on_all_ranks([&](int r) -> Status {
    MK_RETURN_IF_ERROR(session.rank_case(r).run(0));
    return cluster.rank(r).synchronize();
  });
  MK_RETURN_IF_ERROR(ran);
  return verify_set(session, 0, iteration, true);
}

}  // namespace

Result<bool> run_check(const Arguments& arguments) {
  MK_RETURN_IF_ERROR(prepare_file("--json", arguments.json_file));
  MK_RETURN_IF_ERROR(prepare_dump(arguments.dump_dir));
  Result<Session> opened = open_session(arguments, 1);
  if (!opened) return opened.status();
  Session& session = opened.value();
  print_case(session);

  Report report;
  {
    Progress progress("iteration", arguments.iters, arguments.reports());
    for (int64_t i = 0; i < arguments.iters; ++i) {
      const Result<WorstError> worst = check_iteration(session, i);
      if (!worst) return worst.status();
      report.worst.merge(worst.value());
      progress.advance();
    }
  }
  Result<std::vector<RankStatistics>> ranks = collect_statistics(session);
  if (!ranks) return ranks.status();
  report.ranks = std::move(ranks).value();
  print_ranks(session, report);
  print_worst(report.worst);
  MK_RETURN_IF_ERROR(dump(session));
  MK_RETURN_IF_ERROR(write_file(arguments.json_file, to_json(session, report)));
  return report.worst.finding.worst.right();
}

}  // namespace mkernel::app
