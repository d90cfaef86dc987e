#include "network/libfabric/port.h"

#include <algorithm>
#include <array>
#include <utility>

namespace mkernel::libfabric {
namespace {

/// Opens an object by a function whose last parameters are (object**, context).
template <class Object, class Open>
int open_into(Handle<Object>& handle, Open&& open) {
  Object* object = nullptr;
  const int code = open(&object);
  if (code == 0) handle.reset(object);
  return code;
}

}  // namespace

Port::Port(const Library& library, Info info)
    : library_(library),
      info_(std::move(info)),
      who_(std::string("libfabric ") + info_->fabric_attr->prov_name) {}

Result<std::unique_ptr<Port>> Port::open(const Library& library, Info info, uint32_t depth) {
  std::unique_ptr<Port> port(new Port(library, std::move(info)));
  MK_RETURN_IF_ERROR(port->open_objects(depth));
  MK_RETURN_IF_ERROR(port->read_name());
  return port;
}

Status Port::open_objects(uint32_t depth) {
  int code = open_into(
      fabric_, [&](fid_fabric** p) { return library_.fabric(info_->fabric_attr, p, nullptr); });
  if (code != 0) return failed("fi_fabric", code);
  code = open_into(
      domain_, [&](fid_domain** p) { return fi_domain(fabric_.get(), info_.get(), p, nullptr); });
  if (code != 0) return failed("fi_domain", code);
  fi_av_attr av{};
  av.type = info_->domain_attr->av_type;
  code = open_into(av_, [&](fid_av** p) { return fi_av_open(domain_.get(), &av, p, nullptr); });
  if (code != 0) return failed("fi_av_open", code);
  fi_cq_attr cq{};
  cq.format = FI_CQ_FORMAT_DATA;
  cq.wait_obj = FI_WAIT_NONE;
  // Own completions, and room for peers' immediates; a provider with FI_RM_ENABLED holds back what
  // finds none.
  cq.size = std::max<size_t>(size_t{4} * depth, 1024);
  code = open_into(cq_, [&](fid_cq** p) { return fi_cq_open(domain_.get(), &cq, p, nullptr); });
  if (code != 0) return failed("fi_cq_open", code);
  code = open_into(endpoint_,
                   [&](fid_ep** p) { return fi_endpoint(domain_.get(), info_.get(), p, nullptr); });
  if (code != 0) return failed("fi_endpoint", code);
  code = fi_ep_bind(endpoint_.get(), &av_->fid, 0);
  if (code != 0) return failed("fi_ep_bind (address vector)", code);
  code = fi_ep_bind(endpoint_.get(), &cq_->fid, FI_TRANSMIT | FI_RECV);
  if (code != 0) return failed("fi_ep_bind (completion queue)", code);
  code = fi_enable(endpoint_.get());
  if (code != 0) return failed("fi_enable", code);
  return Status::ok();
}

Status Port::read_name() {
  size_t bytes = 0;
  (void)fi_getname(&endpoint_->fid, nullptr, &bytes);  // says how many bytes there are
  name_.resize(bytes);
  const int code = fi_getname(&endpoint_->fid, name_.data(), &bytes);
  if (code != 0) return failed("fi_getname", code);
  name_.resize(bytes);
  return Status::ok();
}

Status Port::failed(const char* call, int64_t code) const {
  const bool lacks_something = code == -FI_ENOMEM || code == -FI_EMFILE || code == -FI_ENODEV;
  return {lacks_something ? Code::kUnavailable : Code::kInternal,
          who_ + " on " + info_->domain_attr->name + ": " + call + ": " + text_of(code)};
}

Status Port::insert(uint32_t peer, uint32_t num_peers, const std::string& name) {
  address_of_peer_.resize(num_peers, FI_ADDR_UNSPEC);
  const int inserted = fi_av_insert(av_.get(), name.data(), 1, &address_of_peer_[peer], 0, nullptr);
  if (inserted == 1) return Status::ok();
  return {Code::kUnavailable, who_ + ": rank " + std::to_string(peer) +
                                  " cannot be reached: fi_av_insert: " +
                                  (inserted < 0 ? text_of(inserted) : "address refused")};
}

Result<Registration> Port::register_memory(void* data, uint64_t bytes) {
  Registration registration;
  const bool bound = (info_->domain_attr->mr_mode & FI_MR_ENDPOINT) != 0;
  int code = open_into(registration.region, [&](fid_mr** p) {
    // The key is a wish; with FI_MR_PROV_KEY the provider makes its own.
    return fi_mr_reg(domain_.get(), data, bytes, FI_WRITE | FI_REMOTE_WRITE, 0,
                     next_key_.fetch_add(1, std::memory_order_relaxed), 0, p, nullptr);
  });
  if (code != 0) {
    return Status(Code::kUnavailable, who_ + ": registering " + std::to_string(bytes) +
                                          " bytes: fi_mr_reg: " + text_of(code));
  }
  if (bound) {
    code = fi_mr_bind(registration.region.get(), &endpoint_->fid, 0);
    if (code != 0) return failed("fi_mr_bind", code);
    code = fi_mr_enable(registration.region.get());
    if (code != 0) return failed("fi_mr_enable", code);
  }
  const bool by_address = (info_->domain_attr->mr_mode & FI_MR_VIRT_ADDR) != 0;
  registration.remote.base = by_address ? reinterpret_cast<uintptr_t>(data) : 0;
  registration.remote.key = fi_mr_key(registration.region.get());
  return registration;
}

int64_t Port::write(Transfer& t) {
  iovec source{const_cast<void*>(t.source), t.bytes};
  fi_rma_iov target{t.address, t.bytes, t.key};
  fi_msg_rma message{};
  message.msg_iov = &source;
  message.desc = &t.descriptor;
  message.iov_count = 1;
  message.addr = address_of_peer_[t.peer];
  message.rma_iov = &target;
  message.rma_iov_count = 1;
  message.context = &t.context;
  message.data = t.data;
  // Complete at delivery: only then may anybody conclude that the bytes are in place.
  return fi_writemsg(endpoint_.get(), &message,
                     FI_COMPLETION | FI_DELIVERY_COMPLETE |
                         (t.has_data ? uint64_t{FI_REMOTE_CQ_DATA} : uint64_t{0}));
}

Port::Failure Port::read_error() {
  fi_cq_err_entry entry{};
  const int64_t count = fi_cq_readerr(cq_.get(), &entry, 0);
  if (count < 0) return {nullptr, who_ + ": fi_cq_readerr: " + text_of(count)};
  std::array<char, 256> buffer{};
  const char* const detail =
      fi_cq_strerror(cq_.get(), entry.prov_errno, entry.err_data, buffer.data(), buffer.size());
  std::string text = who_ + ": " + text_of(-int64_t{entry.err});
  if (detail != nullptr && *detail != '\0' && text_of(-int64_t{entry.err}) != detail) {
    text += std::string(" (") + detail + ")";
  }
  return {entry.op_context, text};
}

}  // namespace mkernel::libfabric
