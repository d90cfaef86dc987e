#include <mkernel/status.h>

namespace mkernel {

const char* code_name(Code code) {
  switch (code) {
    case Code::kOk: return "ok";
    case Code::kInvalidArgument: return "invalid_argument";
    case Code::kUnsupported: return "unsupported";
    case Code::kUnavailable: return "unavailable";
    case Code::kTimeout: return "timeout";
    case Code::kPeerFailed: return "peer_failed";
    case Code::kInternal: return "internal";
  }
  return "unknown";
}

std::string Status::to_string() const {
  return is_ok() ? "ok" : std::string(code_name(code_)) + ": " + message_;
}

}  // namespace mkernel
