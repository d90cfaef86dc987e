// Median and spread of a list of times.
#pragma once
#include <algorithm>
#include <cmath>
#include <string>
#include <vector>

namespace mkernel::app {

/// One named thing that was timed. Units: microseconds; per iteration the slowest rank counts.
struct TimedRun {
  std::string name;
  double median_us = 0;
  double p10_us = 0;
  double p90_us = 0;
};

/// The value below which a fraction q of the sorted values lies, interpolated between neighbours.
inline double quantile(const std::vector<double>& sorted, double q) {
  const double position = q * static_cast<double>(sorted.size() - 1);
  const auto low = static_cast<size_t>(position);
  const size_t high = std::min(low + 1, sorted.size() - 1);
  return std::lerp(sorted[low], sorted[high], position - static_cast<double>(low));
}

/// `times_us` holds at least one value.
inline TimedRun summarize(std::string name, std::vector<double> times_us) {
  std::sort(times_us.begin(), times_us.end());
  return {std::move(name), quantile(times_us, 0.5), quantile(times_us, 0.1),
          quantile(times_us, 0.9)};
}

}  // namespace mkernel::app
