#include "network/libfabric/provider.h"

#include <arpa/inet.h>
#include <rdma/fi_domain.h>
#include <rdma/fi_endpoint.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <set>

namespace mkernel::libfabric {
namespace {

constexpr size_t kMinCqDataBytes = 4;

// Never chosen unasked: they reach this machine only, stand for another provider in tests, do what
// tcp does and are no faster, or make up for lost datagrams (ofi_rxd) on devices whose own
// connections cannot be had, which often means that they reach nobody.
constexpr std::array kOnlyIfAsked{"sm2", "sockets", "udp", "net", "lnx", "ofi_mrail", "ofi_rxd"};
// Never chosen at all: a write without bytes is not completed by it, and its endpoints are not safe
// to close while a peer still makes progress (libfabric 1.17).
constexpr const char* kRefused = "shm";

/// What a provider must have, one at a time, so that a refusal can say which it lacks.
struct Requirement {
  const char* text;
  void (*ask)(fi_info&);
};
constexpr std::array<Requirement, 4> kRequirements{{
    {"reliable unconnected endpoints (FI_EP_RDM)",
     [](fi_info& hints) { hints.ep_attr->type = FI_EP_RDM; }},
    {"remote writes (FI_RMA)",
     [](fi_info& hints) { hints.caps = FI_RMA | FI_WRITE | FI_REMOTE_WRITE; }},
    {"immediates of 4 bytes (FI_REMOTE_CQ_DATA)",
     [](fi_info& hints) { hints.domain_attr->cq_data_size = kMinCqDataBytes; }},
    {"completion at delivery (FI_DELIVERY_COMPLETE)",
     [](fi_info& hints) { hints.tx_attr->op_flags = FI_DELIVERY_COMPLETE; }},
}};

/// "tcp;ofi_rxm" -> "tcp".
std::string base_name(const fi_info& info) {
  const std::string name = info.fabric_attr->prov_name;
  return name.substr(0, name.find(';'));
}
/// "tcp;ofi_rxm" -> "ofi_rxm", "tcp" -> "tcp".
std::string layer_name(const fi_info& info) {
  const std::string name = info.fabric_attr->prov_name;
  return name.substr(name.find(';') + 1);
}

/// Whether a provider's own address is the one that is spelled so.
bool has_address(const fi_info& info, const std::string& text) {
  in6_addr wanted{};
  if (info.src_addr == nullptr) return false;
  if (info.addr_format == FI_SOCKADDR_IN) {
    const auto* own = static_cast<const sockaddr_in*>(info.src_addr);
    return inet_pton(AF_INET, text.c_str(), &wanted) == 1 &&
           std::memcmp(&wanted, &own->sin_addr, sizeof own->sin_addr) == 0;
  }
  if (info.addr_format != FI_SOCKADDR_IN6) return false;
  const auto* own = static_cast<const sockaddr_in6*>(info.src_addr);
  return inet_pton(AF_INET6, text.c_str(), &wanted) == 1 &&
         std::memcmp(&wanted, &own->sin6_addr, sizeof own->sin6_addr) == 0;
}

class Chooser {
 public:
  Chooser(const Library& library, const LibfabricOptions& options)
      : library_(library), options_(options) {}

  Result<Info> choose() const {
    if (options_.provider == kRefused)
      return Status(Code::kUnsupported, asked_for() +
                                            " does not complete writes without bytes; "
                                            "on one machine tcp or loopback will do");
    const Info found = query(kRequirements.size());
    if (!found) return why_none();
    const fi_info* best = nullptr;
    for (const fi_info* info = found.get(); info != nullptr; info = info->next) {
      if (fits(*info) && (best == nullptr || rank(*info) < rank(*best))) best = info;
    }
    if (best == nullptr) return not_found(found.get());
    Info copy(library_.dupinfo(best), {&library_});
    if (!copy) return Status(Code::kInternal, "libfabric: fi_dupinfo: out of memory");
    return copy;
  }

 private:
  /// What meets the first requirements; null if nothing does.
  Info query(size_t num_requirements) const {
    const Info hints(library_.dupinfo(nullptr), {&library_});
    if (!hints) return {nullptr, {&library_}};
    // What callers here can do for a provider; it clears what it does not need.
    hints->mode = FI_CONTEXT | FI_CONTEXT2;
    hints->domain_attr->mr_mode =
        FI_MR_LOCAL | FI_MR_VIRT_ADDR | FI_MR_ALLOCATED | FI_MR_PROV_KEY | FI_MR_ENDPOINT;
    hints->domain_attr->threading = FI_THREAD_SAFE;  // regions come and go on other threads
    hints->domain_attr->resource_mgmt = FI_RM_ENABLED;
    for (size_t i = 0; i < num_requirements; ++i) kRequirements[i].ask(*hints);
    // The name is freed with the hints.
    if (!options_.provider.empty()) {
      hints->fabric_attr->prov_name = strdup(options_.provider.c_str());
    }
    fi_info* found = nullptr;
    const int failed = library_.getinfo(kApiVersion, nullptr, nullptr, 0, hints.get(), &found);
    return {failed == 0 ? found : nullptr, {&library_}};
  }

  bool fits(const fi_info& info) const {
    const auto only_if_asked = [](const std::string& name) {
      return std::ranges::count(kOnlyIfAsked, name) > 0;
    };
    if (base_name(info) == kRefused) return false;
    if (options_.provider.empty() &&
        (only_if_asked(base_name(info)) || only_if_asked(layer_name(info)))) {
      return false;
    }
    return options_.interface.empty() || options_.interface == info.domain_attr->name ||
           has_address(info, options_.interface);
  }

  /// Lower is better; among equals libfabric's order holds, which has the fastest first.
  static int rank(const fi_info& info) {
    return (base_name(info) == "tcp" ? 2 : 0) + (info.addr_format == FI_SOCKADDR_IN6 ? 1 : 0);
  }

  std::string asked_for() const {
    return "libfabric: " + (options_.provider.empty() ? "any provider" : options_.provider) +
           (options_.interface.empty() ? "" : " on " + options_.interface);
  }

  Status why_none() const {
    // Without any requirement a provider is found if it exists; from there, the first one missed.
    for (size_t n = 0; n < kRequirements.size(); ++n) {
      if (!query(n)) break;
      if (!query(n + 1)) {
        return {Code::kUnsupported, asked_for() + " has no " + kRequirements[n].text};
      }
    }
    const LibfabricOptions anything;
    const Info all = Chooser(library_, anything).query(kRequirements.size());
    return not_found(all.get());
  }

  Status not_found(const fi_info* all) const {
    std::set<std::string> names;
    for (const fi_info* info = all; info != nullptr; info = info->next) {
      names.insert(base_name(*info) + " on " + info->domain_attr->name);
    }
    std::string text;
    for (const std::string& name : names) text += (text.empty() ? "" : ", ") + name;
    return {Code::kUnavailable,
            asked_for() + ": not found; there is " + (text.empty() ? "nothing" : text)};
  }

  const Library& library_;
  const LibfabricOptions& options_;
};

}  // namespace

Result<Info> choose_provider(const Library& library, const LibfabricOptions& options) {
  return Chooser(library, options).choose();
}

}  // namespace mkernel::libfabric
