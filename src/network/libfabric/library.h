// libfabric as found on this machine. Only these functions are symbols of the library; everything
// else is reached through the objects that they make.
#pragma once
#include <rdma/fabric.h>
#include <rdma/fi_errno.h>

#include <cstdint>
#include <memory>
#include <string>

#include <mkernel/status.h>

namespace mkernel::libfabric {

/// The interface that is asked for. Newer libraries keep offering it.
inline constexpr uint32_t kApiVersion = FI_VERSION(1, 14);

struct Library {
  decltype(&::fi_getinfo) getinfo = nullptr;
  decltype(&::fi_freeinfo) freeinfo = nullptr;
  decltype(&::fi_dupinfo) dupinfo = nullptr;
  decltype(&::fi_fabric) fabric = nullptr;
  decltype(&::fi_strerror) strerror = nullptr;
  decltype(&::fi_version) version = nullptr;

  /// What a negative return value means.
  std::string text_of(int64_t code) const { return strerror(static_cast<int>(-code)); }
};

/// Loads a file, for good.
/// Errors: unavailable, with what the dynamic linker said; unsupported if it is too old.
Result<Library> load_library(const std::string& file);

/// libfabric.so.1, loaded at the first call.
const Result<Library>& library();

struct FreeInfo {
  const Library* library = nullptr;
  void operator()(fi_info* info) const { library->freeinfo(info); }
};
using Info = std::unique_ptr<fi_info, FreeInfo>;

}  // namespace mkernel::libfabric
