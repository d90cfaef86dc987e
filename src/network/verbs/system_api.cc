#include "network/verbs/system_api.h"

#if defined(MK_WITH_VERBS)
#include <cerrno>
#include <cstring>

#include "network/verbs/system_device.h"
#include "network/verbs/system_library.h"
#endif

namespace mkernel::verbs {

#if defined(MK_WITH_VERBS)
namespace {

class SystemApi final : public Api {
 public:
  explicit SystemApi(std::shared_ptr<const VerbsLibrary> library) : library_(std::move(library)) {}

  Result<std::vector<std::string>> devices() override {
    std::vector<std::string> names;
    const DeviceList list(*library_);
    for (ibv_device* const device : list.devices()) {
      names.emplace_back(library_->get_device_name(device));
    }
    return names;
  }

  Result<std::unique_ptr<Device>> open(const std::string& name) override {
    const DeviceList list(*library_);
    std::string known;
    for (ibv_device* const device : list.devices()) {
      if (name == library_->get_device_name(device)) return open_system_device(library_, device);
      known += std::string(known.empty() ? "" : ", ") + library_->get_device_name(device);
    }
    return Status(Code::kUnavailable, "verbs: no device " + name + " on this machine, which has " +
                                          (known.empty() ? "none" : known));
  }

 private:
  /// Without a kernel that knows RDMA the list is empty.
  class DeviceList {
   public:
    explicit DeviceList(const VerbsLibrary& library)
        : library_(library), list_(library.get_device_list(&count_)) {}
    ~DeviceList() {
      if (list_ != nullptr) library_.free_device_list(list_);
    }
    DeviceList(const DeviceList&) = delete;
    DeviceList& operator=(const DeviceList&) = delete;
    std::span<ibv_device*> devices() const {
      return {list_, list_ == nullptr ? 0 : static_cast<size_t>(count_)};
    }

   private:
    const VerbsLibrary& library_;
    int count_ = 0;
    ibv_device** const list_;
  };

  const std::shared_ptr<const VerbsLibrary> library_;
};

}  // namespace

Result<std::shared_ptr<Api>> open_system_api() {
  Result<std::shared_ptr<const VerbsLibrary>> library = load_verbs_library();
  if (!library) return library.status();
  return std::shared_ptr<Api>(std::make_shared<SystemApi>(std::move(*library)));
}

#else

Result<std::shared_ptr<Api>> open_system_api() {
  return Status(Code::kUnsupported, "verbs: built without verbs headers");
}

#endif

}  // namespace mkernel::verbs
