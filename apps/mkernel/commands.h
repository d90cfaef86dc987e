// The commands. Each prints its report and answers whether all was right.
#pragma once
#include "arguments.h"

namespace mkernel::app {

Status run_info(const Arguments& arguments);
Result<bool> run_check(const Arguments& arguments);
Result<bool> run_bench(const Arguments& arguments);
/// That what arrived is what was sent is part of its being ok.
Status run_net_bench(const Arguments& arguments);

}  // namespace mkernel::app
