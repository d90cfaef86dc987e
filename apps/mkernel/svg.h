// A bar chart as SVG text.
#pragma once
#include <string>
#include <vector>

#include "summary.h"

namespace mkernel::app {

/// One bar per run: its median, with a whisker from p10 to p90.
std::string bar_chart(const std::string& title, const std::vector<TimedRun>& runs);

}  // namespace mkernel::app
