// What the process returns.
#pragma once
#include <mkernel/status.h>

namespace mkernel::app {

enum ExitCode : int {
  kExitRight = 0,
  kExitWrong = 1,  // an output is out of its bound
  kExitBadArguments = 2,
  kExitFailed = 3,  // the run failed: a time-out, a peer, the network
  kExitCannot = 4,  // this machine or this build lacks something
};

inline ExitCode exit_code_of(const Status& status) {
  switch (status.code()) {
    case Code::kOk: return kExitRight;
    case Code::kInvalidArgument: return kExitBadArguments;
    case Code::kUnsupported:
    case Code::kUnavailable: return kExitCannot;
    case Code::kTimeout:
    case Code::kPeerFailed:
    case Code::kInternal: return kExitFailed;
  }
  return kExitFailed;
}

}  // namespace mkernel::app
