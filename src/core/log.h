// Where a part that goes on without something says so. Whoever makes the part chooses what becomes
// of the lines; an empty function drops them.
#pragma once
#include <functional>
#include <string>

namespace mkernel {

/// Takes one line without its end.
/// Threads: the one that calls the part.
using Log = std::function<void(const std::string& line)>;

}  // namespace mkernel
