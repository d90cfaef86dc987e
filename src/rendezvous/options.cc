#include "rendezvous/options.h"

#include <cstddef>
#include <string>

#include "rendezvous/identity.h"
#include "rendezvous/socket.h"
#include "rendezvous/text.h"

namespace mkernel {
namespace {

constexpr uint32_t kMaxWorld = 1 << 16;  // ranks are named with 16 bits
constexpr size_t kMaxRunIdBytes = 256;
constexpr size_t kMaxSecretBytes = 4096;
constexpr int64_t kMaxLimitUs = 1'000'000'000'000;
constexpr int64_t kMinHeartbeatUs = 1000;

Status bad(const char* field, const std::string& given, const std::string& allowed) {
  return {Code::kInvalidArgument,
          std::string("rendezvous option ") + field + " = " + given + ": must be " + allowed};
}

Status check_limit(const char* field, int64_t us, int64_t min_us, int64_t max_us) {
  if (us >= min_us && us <= max_us) return Status::ok();
  return bad(field, std::to_string(us),
             "from " + std::to_string(min_us) + " to " + std::to_string(max_us) + " microseconds");
}

Status check_length(const char* field, const std::string& text, size_t max_bytes) {
  if (text.size() <= max_bytes) return Status::ok();
  return bad(field, "a text of " + std::to_string(text.size()) + " bytes",
             "of at most " + std::to_string(max_bytes));
}

}  // namespace

Status check_options(const RendezvousOptions& options) {
  if (options.world < 1 || options.world > kMaxWorld) {
    return bad("world", std::to_string(options.world), "from 1 to " + std::to_string(kMaxWorld));
  }
  if (options.rank >= options.world) {
    return bad("rank", std::to_string(options.rank),
               "below world, " + std::to_string(options.world));
  }
  MK_RETURN_IF_ERROR(check_length("run_id", options.run_id, kMaxRunIdBytes));
  MK_RETURN_IF_ERROR(check_length("secret", options.secret, kMaxSecretBytes));
  MK_RETURN_IF_ERROR(check_length("host_id", options.host_id, kMaxHostBytes));
  MK_RETURN_IF_ERROR(check_limit("join_timeout_us", options.join_timeout_us, 1, kMaxLimitUs));
  MK_RETURN_IF_ERROR(
      check_limit("silence_limit_us", options.silence_limit_us, 2 * kMinHeartbeatUs, kMaxLimitUs));
  MK_RETURN_IF_ERROR(check_limit("heartbeat_us", options.heartbeat_us, kMinHeartbeatUs,
                                 options.silence_limit_us / 2));
  if (options.world == 1) return Status::ok();
  if (options.rank == 0 && options.listener) {
    if (options.listener->fd() >= 0) return Status::ok();
    return bad("listener", "a closed one", "open; one listener serves one group");
  }
  Result<HostPort> where = parse_address(options.address);
  if (!where) return where.status();
  if (where->port != 0) return Status::ok();
  return bad("address", "\"" + printable(options.address, kMaxHostBytes) + "\"",
             "with a port from 1 to 65535, the same on every rank");
}

}  // namespace mkernel
