// The verbs libraries of the system behind the calls of api.h. They are found when first asked for,
// so one binary starts with and without them. Headers of verbs appear only in system_*.
#pragma once
#include <memory>

#include <mkernel/status.h>

#include "network/verbs/api.h"

namespace mkernel::verbs {

/// Errors: unsupported if this was built without the headers of verbs; unavailable, with what the
/// loader says, if libibverbs.so.1 is not there or too old.
Result<std::shared_ptr<Api>> open_system_api();

}  // namespace mkernel::verbs
