// Slurm's short form of lists of hosts.
#include <algorithm>

#include "rendezvous/launcher.h"

namespace mkernel {
namespace {

constexpr size_t kNone = std::string::npos;

bool is_host_character(char c) {
  return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '-' ||
         c == '.' || c == '_';
}

}  // namespace

Result<FirstHost> first_host_of(const std::string& list) {
  const Status bad(Code::kInvalidArgument,
                   "a list of hosts, such as node[001-004,7],gpu3, without empty ones");
  FirstHost host{.name = {}, .is_only = true};
  size_t at = 0;
  while (at < list.size() && list[at] != ',') {
    if (list[at] != '[') {
      if (!is_host_character(list[at])) return bad;
      host.name += list[at++];
      continue;
    }
    // Of what is in brackets, numbers and ranges of them, the first number is the first host's.
    const size_t close = list.find(']', at);
    if (close == kNone) return bad;
    const std::string inside = list.substr(at + 1, close - at - 1);
    const std::string first = inside.substr(0, inside.find_first_of("-,"));
    if (first.empty() || !std::ranges::all_of(first, [](char c) { return c >= '0' && c <= '9'; })) {
      return bad;
    }
    if (inside.find_first_not_of("0123456789-,") != kNone) return bad;
    host.is_only = host.is_only && inside == first;
    host.name += first;
    at = close + 1;
  }
  if (host.name.empty() || at + 1 == list.size()) return bad;
  host.is_only = host.is_only && at == list.size();
  return host;
}

}  // namespace mkernel
