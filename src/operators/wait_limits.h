// From what a caller set to the limits that waits have.
#pragma once
#include <string>

#include <mkernel/options.h>
#include <mkernel/status.h>

#include "core/watchdog.h"

namespace mkernel::detail {

/// Errors: invalid_argument, naming the option, its value and what is allowed.
Status check_wait_limits(const ClusterOptions& options);

/// The limits of options that check_wait_limits lets pass, scaled as they say.
WaitLimits wait_limits(const ClusterOptions& options);

/// How long a wait lasted that came to this limit, and which option set it.
std::string describe(Limit limit, const WaitLimits& limits);

}  // namespace mkernel::detail
