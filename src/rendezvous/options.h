// Which rendezvous options are allowed.
#pragma once
#include <mkernel/rendezvous.h>
#include <mkernel/status.h>

namespace mkernel {

/// Errors:  invalid_argument if an option is not allowed, with its value and what is.
Status check_options(const RendezvousOptions& options);

}  // namespace mkernel
