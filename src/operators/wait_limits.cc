#include "operators/wait_limits.h"

#include <algorithm>
#include <sstream>

namespace mkernel::detail {
namespace {

constexpr int64_t kMaxTimeoutUs = INT64_MAX / 1000;  // limits are counted in nanoseconds
constexpr double kMaxTimeScale = 1e6;
constexpr double kLongestNs = 0x1p62;  // more than a century: what is longer is as good

#if defined(MK_SANITIZER)
constexpr double kBuildScale = 5;
#else
constexpr double kBuildScale = 1;
#endif

Status check_timeout(const std::string& name, int64_t us) {
  if (us > 0 && us <= kMaxTimeoutUs) return Status::ok();
  return {Code::kInvalidArgument,
          name + " = " + std::to_string(us) + ": must be 1 to " + std::to_string(kMaxTimeoutUs)};
}

uint64_t scaled_ns(int64_t us, double time_scale) {
  const double ns = 1e3 * static_cast<double>(us) * time_scale * kBuildScale;
  return static_cast<uint64_t>(std::min(ns, kLongestNs));
}

}  // namespace

Status check_wait_limits(const ClusterOptions& o) {
  MK_RETURN_IF_ERROR(check_timeout("timeout_us", o.timeout_us));
  MK_RETURN_IF_ERROR(check_timeout("contact_timeout_us", o.contact_timeout_us));
  if (o.time_scale >= 1 && o.time_scale <= kMaxTimeScale) return Status::ok();
  std::ostringstream value;  // std::to_string would spell 1e300 out
  value << o.time_scale;
  return {Code::kInvalidArgument, "time_scale = " + value.str() + ": must be 1 to 1e6"};
}

WaitLimits wait_limits(const ClusterOptions& o) {
  const uint64_t progress_ns = scaled_ns(o.timeout_us, o.time_scale);
  return {progress_ns, std::max(progress_ns, scaled_ns(o.contact_timeout_us, o.time_scale))};
}

std::string describe(Limit limit, const WaitLimits& limits) {
  if (limit == Limit::kProgress)
    return std::to_string(limits.progress_ns / 1000) + " us (timeout_us)";
  return std::to_string(limits.contact_ns / 1000) + " us (contact_timeout_us)";
}

}  // namespace mkernel::detail
