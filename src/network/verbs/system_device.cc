#include "network/verbs/system_device.h"

#include <cerrno>
#include <cstring>
#include <utility>

namespace mkernel::verbs {
namespace {

// Headers of rdma-core before 46 do not have this bit of efadv_device_attr::device_caps; what a
// library of that age reports lacks it too.
constexpr uint32_t kEfaCanWrite = 1u << 3;

class SystemRegion final : public MemoryRegion {
 public:
  explicit SystemRegion(OwnedRegion region) : region_(std::move(region)) {}
  uint32_t lkey() const override { return region_->lkey; }
  uint32_t rkey() const override { return region_->rkey; }

 private:
  const OwnedRegion region_;
};

class SystemHandle final : public AddressHandle {
 public:
  SystemHandle(OwnedHandle handle, uint32_t number) : handle_(std::move(handle)), number_(number) {}
  uint32_t number() const override { return number_; }
  ibv_ah* get() const { return handle_.get(); }

 private:
  const OwnedHandle handle_;
  const uint32_t number_;
};

unsigned access_flags(const Access& access) {
  unsigned flags = 0;
  if (access.local_write) flags |= IBV_ACCESS_LOCAL_WRITE;
  if (access.remote_write) flags |= IBV_ACCESS_REMOTE_WRITE;
  if (access.relaxed_ordering) flags |= IBV_ACCESS_RELAXED_ORDERING;
  return flags;
}

const char* name_of(ibv_port_state state) {
  switch (state) {
    case IBV_PORT_DOWN: return "DOWN";
    case IBV_PORT_INIT: return "INIT";
    case IBV_PORT_ARMED: return "ARMED";
    case IBV_PORT_ACTIVE: return "ACTIVE";
    case IBV_PORT_ACTIVE_DEFER: return "ACTIVE_DEFER";
    default: return "in no known state";
  }
}

class SystemDevice final : public Device {
 public:
  explicit SystemDevice(SystemContext system) : system_(std::move(system)) {}

  Result<DeviceLimits> limits() override {
    ibv_device_attr attributes{};
    MK_VERBS_CHECK("ibv_query_device", system_.name,
                   lib().query_device(system_.context.get(), &attributes));
    const auto count = [](int n) { return static_cast<uint32_t>(n > 0 ? n : 0); };
    DeviceLimits limits{.max_sends = count(attributes.max_qp_wr),
                        .max_receives = count(attributes.max_qp_wr),
                        .max_cqe = count(attributes.max_cqe),
                        .max_queue_pairs = count(attributes.max_qp)};
    if (Result<efadv_device_attr> efa = query_efa(system_)) {
      limits.max_sends = efa->max_sq_wr;
      limits.max_receives = efa->max_rq_wr;
    }
    return limits;
  }

  Result<PortInfo> port(uint32_t number) override {
    ibv_port_attr attributes{};
    MK_VERBS_CHECK("ibv_query_port", system_.name,
                   lib().query_port(system_.context.get(), static_cast<uint8_t>(number),
                                    reinterpret_cast<_compat_ibv_port_attr*>(&attributes)));
    LinkLayer link_layer = LinkLayer::kInfiniband;
    if (attributes.link_layer == IBV_LINK_LAYER_ETHERNET) link_layer = LinkLayer::kEthernet;
    if (query_efa(system_)) link_layer = LinkLayer::kEfa;
    return PortInfo{.active = attributes.state == IBV_PORT_ACTIVE,
                    .state = name_of(attributes.state),
                    .link_layer = link_layer,
                    .lid = attributes.lid,
                    .mtu_bytes = 128u << attributes.active_mtu,
                    .max_message_bytes = attributes.max_msg_sz,
                    .num_gids = static_cast<uint32_t>(attributes.gid_tbl_len)};
  }

  Result<std::optional<GidEntry>> gid(uint32_t port, uint32_t index) override {
    ibv_gid_entry entry{};
    const int error =
        lib().query_gid_ex(system_.context.get(), port, index, &entry, 0, sizeof entry);
    if (error == ENODATA) return std::optional<GidEntry>();
    MK_VERBS_CHECK("ibv_query_gid_ex", system_.name, error);
    GidEntry found{{}, GidType::kInfiniband};
    std::memcpy(found.gid.data(), entry.gid.raw, found.gid.size());
    if (entry.gid_type == IBV_GID_TYPE_ROCE_V1) found.type = GidType::kRoceV1;
    if (entry.gid_type == IBV_GID_TYPE_ROCE_V2) found.type = GidType::kRoceV2;
    return std::optional(found);
  }

  Result<EfaInfo> efa() override {
    Result<efadv_device_attr> attributes = query_efa(system_);
    if (!attributes) return attributes.status();
    return EfaInfo{.can_write = (attributes->device_caps & kEfaCanWrite) != 0,
                   .retries_rnr = (attributes->device_caps & EFADV_DEVICE_ATTR_CAPS_RNR_RETRY) != 0,
                   .max_write_bytes = attributes->max_rdma_size};
  }

  Result<std::unique_ptr<CompletionQueue>> create_completion_queue(uint32_t depth) override {
    return create_system_queue(system_, depth);
  }

  Result<std::unique_ptr<QueuePair>> create_queue_pair(const QueuePairConfig& config) override {
    return create_system_pair(system_, config);
  }

  Result<std::unique_ptr<AddressHandle>> create_address_handle(uint32_t port, uint32_t gid_index,
                                                               const Gid& remote) override {
    ibv_ah_attr attributes{};
    attributes.is_global = 1;
    attributes.port_num = static_cast<uint8_t>(port);
    attributes.grh.sgid_index = static_cast<uint8_t>(gid_index);
    std::memcpy(attributes.grh.dgid.raw, remote.data(), remote.size());
    OwnedHandle handle(lib().create_ah(system_.domain.get(), &attributes), {system_.library});
    if (handle == nullptr) return verbs_failed("ibv_create_ah", system_.name, errno);
    efadv_ah_attr efa{};
    MK_VERBS_CHECK("efadv_query_ah", system_.name,
                   lib().efa_query_ah(handle.get(), &efa, sizeof efa));
    return std::unique_ptr<AddressHandle>(new SystemHandle(std::move(handle), efa.ahn));
  }

  Result<std::unique_ptr<MemoryRegion>> register_memory(void* data, uint64_t bytes,
                                                        const Access& access) override {
    // This one drops what is optional if the kernel does not know it.
    OwnedRegion region(lib().reg_mr(system_.domain.get(), data, bytes,
                                    reinterpret_cast<uint64_t>(data), access_flags(access)),
                       {system_.library});
    if (region != nullptr)
      return std::unique_ptr<MemoryRegion>(new SystemRegion(std::move(region)));
    const int error = errno;
    Status status = verbs_failed("ibv_reg_mr", system_.name, error);
    return Status(status.code(), status.message() + ", for " + std::to_string(bytes) + " bytes" +
                                     (error == ENOMEM ? "; see ulimit -l" : ""));
  }

  Result<std::unique_ptr<MemoryRegion>> register_dmabuf(int fd, uint64_t offset, uint64_t bytes,
                                                        uint64_t address,
                                                        const Access& access) override {
    OwnedRegion region(lib().reg_dmabuf_mr(system_.domain.get(), offset, bytes, address, fd,
                                           static_cast<int>(access_flags(access))),
                       {system_.library});
    if (region == nullptr) return verbs_failed("ibv_reg_dmabuf_mr", system_.name, errno);
    return std::unique_ptr<MemoryRegion>(new SystemRegion(std::move(region)));
  }

 private:
  const VerbsLibrary& lib() const { return *system_.library; }

  const SystemContext system_;
};

}  // namespace

ibv_ah* system_handle(const AddressHandle& handle) {
  return static_cast<const SystemHandle&>(handle).get();
}

Result<efadv_device_attr> query_efa(const SystemContext& system) {
  const VerbsLibrary& library = *system.library;
  if (!library.efa_missing.empty()) {
    return Status(Code::kUnavailable, "efa: " + library.efa_missing);
  }
  efadv_device_attr attributes{};
  if (library.efa_query_device(system.context.get(), &attributes, sizeof attributes) != 0) {
    return Status(Code::kUnsupported, "efa: device " + system.name + " is no EFA device");
  }
  return attributes;
}

Result<std::unique_ptr<Device>> open_system_device(
    const std::shared_ptr<const VerbsLibrary>& library, ibv_device* device) {
  const std::string name = library->get_device_name(device);
  OwnedContext context(library->open_device(device), {library});
  if (context == nullptr) return verbs_failed("ibv_open_device", name, errno);
  OwnedDomain domain(library->alloc_pd(context.get()), {library});
  if (domain == nullptr) return verbs_failed("ibv_alloc_pd", name, errno);
  return std::unique_ptr<Device>(
      new SystemDevice({library, name, std::move(context), std::move(domain)}));
}

}  // namespace mkernel::verbs
