// What check and bench say, to people and as JSON.
#pragma once
#include <string>
#include <vector>

#include "session.h"
#include "summary.h"

namespace mkernel::app {

/// The time below which no fused operator can come, as far as this run knows.
struct Floor {
  double us = 0;  // 0: not known
  std::string is;
};

struct Report {
  std::vector<TimedRun> runs;  // the fused run first
  std::vector<LeftOut> left_out;
  WorstError worst;
  Floor floor;
  std::vector<RankStatistics> ranks;
};

Result<std::vector<RankStatistics>> collect_statistics(Session& session);

void print_case(Session& session);
void print_ranks(const Session& session, const Report& report);
void print_worst(const WorstError& worst);
void print_runs(const Session& session, const Report& report);

double tflops_per_gpu(const Session& session, double us);
std::string to_json(Session& session, const Report& report);

/// Creates or empties the file, so that a path that cannot be written is told before the work.
/// Errors: invalid_argument. An empty path means that no file is wanted.
Status prepare_file(const std::string& option, const std::string& path);
Status write_file(const std::string& path, const std::string& text);

}  // namespace mkernel::app
