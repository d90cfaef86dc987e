// An opened device of the system.
#pragma once
#include <memory>
#include <string>

#include "network/verbs/api.h"
#include "network/verbs/system_library.h"

namespace mkernel::verbs {

/// Frees with the library that made it.
template <class T, auto kFree>
struct FreeWith {
  std::shared_ptr<const VerbsLibrary> library;
  void operator()(T* p) const { (void)((*library).*kFree)(p); }
};
template <class T, auto kFree>
using Owned = std::unique_ptr<T, FreeWith<T, kFree>>;

using OwnedContext = Owned<ibv_context, &VerbsLibrary::close_device>;
using OwnedDomain = Owned<ibv_pd, &VerbsLibrary::dealloc_pd>;
using OwnedQueue = Owned<ibv_cq, &VerbsLibrary::destroy_cq>;
using OwnedPair = Owned<ibv_qp, &VerbsLibrary::destroy_qp>;
using OwnedHandle = Owned<ibv_ah, &VerbsLibrary::destroy_ah>;
using OwnedRegion = Owned<ibv_mr, &VerbsLibrary::dereg_mr>;

/// What the objects of a device share.
struct SystemContext {
  std::shared_ptr<const VerbsLibrary> library;
  std::string name;
  OwnedContext context;
  OwnedDomain domain;
};

/// Opens a device of the list.
Result<std::unique_ptr<Device>> open_system_device(
    const std::shared_ptr<const VerbsLibrary>& library, ibv_device* device);

/// What the device says of itself as an EFA device. See Device::efa().
Result<efadv_device_attr> query_efa(const SystemContext& system);

Result<std::unique_ptr<CompletionQueue>> create_system_queue(const SystemContext& system,
                                                             uint32_t depth);
Result<std::unique_ptr<QueuePair>> create_system_pair(const SystemContext& system,
                                                      const QueuePairConfig& config);
/// The library's object behind one of a device's handles.
ibv_ah* system_handle(const AddressHandle& handle);

}  // namespace mkernel::verbs
