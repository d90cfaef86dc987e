#include "network/libfabric/library.h"

#include <dlfcn.h>

#include <array>
#include <csignal>

namespace mkernel::libfabric {
namespace {

template <class Function>
Status find(void* handle, const char* name, Function*& function) {
  function = reinterpret_cast<Function*>(dlsym(handle, name));
  if (function != nullptr) return Status::ok();
  return {Code::kUnsupported, std::string("libfabric: the library has no ") + name};
}

/// Keeps the handlers of signals as they are while libraries are loaded: some that come with
/// providers (PSM) install their own, which write files where the process crashes or is
/// interrupted.
class SignalHandlers {
 public:
  SignalHandlers() {
    for (size_t i = 0; i < kSignals.size(); ++i) {
      (void)sigaction(kSignals[i], nullptr, &handlers_[i]);
    }
  }
  ~SignalHandlers() {
    for (size_t i = 0; i < kSignals.size(); ++i) {
      (void)sigaction(kSignals[i], &handlers_[i], nullptr);
    }
  }
  SignalHandlers(const SignalHandlers&) = delete;
  SignalHandlers& operator=(const SignalHandlers&) = delete;

 private:
  static constexpr std::array kSignals{SIGSEGV, SIGBUS, SIGILL, SIGFPE,  SIGABRT,
                                       SIGTRAP, SIGHUP, SIGINT, SIGQUIT, SIGTERM};
  std::array<struct sigaction, kSignals.size()> handlers_{};
};

std::string version_text(uint32_t version) {
  return std::to_string(FI_MAJOR(version)) + "." + std::to_string(FI_MINOR(version));
}

}  // namespace

Result<Library> load_library(const std::string& file) {
  void* handle = nullptr;
  {
    const SignalHandlers kept;
    handle = dlopen(file.c_str(), RTLD_NOW | RTLD_LOCAL);
  }
  if (handle == nullptr) {
    const char* const why = dlerror();
    return Status(Code::kUnavailable,
                  std::string("libfabric: ") + (why != nullptr ? why : file.c_str()));
  }
  Library library;
  MK_RETURN_IF_ERROR(find(handle, "fi_getinfo", library.getinfo));
  MK_RETURN_IF_ERROR(find(handle, "fi_freeinfo", library.freeinfo));
  MK_RETURN_IF_ERROR(find(handle, "fi_dupinfo", library.dupinfo));
  MK_RETURN_IF_ERROR(find(handle, "fi_fabric", library.fabric));
  MK_RETURN_IF_ERROR(find(handle, "fi_strerror", library.strerror));
  MK_RETURN_IF_ERROR(find(handle, "fi_version", library.version));
  if (FI_VERSION_LT(library.version(), kApiVersion)) {
    return Status(Code::kUnsupported, "libfabric: version " + version_text(library.version()) +
                                          ": at least " + version_text(kApiVersion));
  }
  return library;
}

const Result<Library>& library() {
  static const Result<Library> loaded = load_library("libfabric.so.1");
  return loaded;
}

}  // namespace mkernel::libfabric
