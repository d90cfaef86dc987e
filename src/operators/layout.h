// What a cluster looks like: its options checked, and what they leave open chosen.
#pragma once
#include <mkernel/options.h>
#include <mkernel/status.h>

#include "operators/processes.h"

namespace mkernel::detail {

/// Errors: invalid_argument or unsupported, naming the option, its value and what is allowed.
Status check_options(const ClusterOptions& options);

/// For a cluster of processes: nodes and gpus, where they are 0, from who shares a host; the
/// transport, where it is "auto". A host may carry several nodes, a node has one host. Collective.
/// Errors: as above; invalid_argument if the processes do not fit the options, or if ranks were
/// given different ones.
Status choose_layout(ClusterOptions& options, Processes& processes);

}  // namespace mkernel::detail
