// Which of the networks that libfabric finds is used, and why another one is not.
#pragma once
#include <string>

#include <mkernel/options.h>
#include <mkernel/status.h>

#include "network/libfabric/library.h"

namespace mkernel::libfabric {

/// The network that the options name or, where they leave it open, libfabric's first that reaches
/// other machines at more than a socket's speed; tcp if there is none.
/// Errors: unavailable, with the providers or interfaces that there are; unsupported, with what the
/// provider lacks.
Result<Info> choose_provider(const Library& library, const LibfabricOptions& options);

}  // namespace mkernel::libfabric
