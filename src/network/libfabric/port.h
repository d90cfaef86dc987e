// One rank's libfabric objects, from the fabric to the endpoint: registers memory, gives writes to
// the provider, reads what completed. Knows nothing of heaps.
//
// Threads: write() and read() on one thread; register_memory() and registrations on any.
#pragma once
#include <rdma/fi_cm.h>
#include <rdma/fi_domain.h>
#include <rdma/fi_endpoint.h>
#include <rdma/fi_eq.h>
#include <rdma/fi_rma.h>

#include <atomic>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include <mkernel/status.h>

#include "network/libfabric/library.h"

namespace mkernel::libfabric {

template <class Object>
struct CloseObject {
  void operator()(Object* object) const { (void)fi_close(&object->fid); }
};
template <class Object>
using Handle = std::unique_ptr<Object, CloseObject<Object>>;

/// What a peer needs to write into registered memory. All zero is never valid.
struct RemoteMemory {
  uint64_t base = 0;  // added to an offset it is the address to write to
  uint64_t key = 0;
};

/// Memory that the provider may read and peers may write, until this goes.
struct Registration {
  Handle<fid_mr> region;
  RemoteMemory remote;
  void* descriptor() const { return region ? fi_mr_desc(region.get()) : nullptr; }
};

/// One write on its way. It stays where it is until its completion has been read.
struct Transfer {
  fi_context2 context{};  // the provider's; its address names the transfer
  uint32_t peer = 0;
  const void* source = nullptr;
  void* descriptor = nullptr;
  uint64_t bytes = 0;
  uint64_t address = 0;
  uint64_t key = 0;
  bool has_data = false;
  uint64_t data = 0;
  uint32_t owner = 0;  // what it is part of; for the sender
};

class Port {
 public:
  /// `depth` writes at once, as far as the provider goes.
  static Result<std::unique_ptr<Port>> open(const Library& library, Info info, uint32_t depth);

  const fi_info& info() const { return *info_; }
  /// "libfabric tcp;ofi_rxm".
  const std::string& who() const { return who_; }
  /// The bytes by which peers find this endpoint.
  const std::string& name() const { return name_; }
  /// Makes a peer known.
  Status insert(uint32_t peer, uint32_t num_peers, const std::string& name);
  Result<Registration> register_memory(void* data, uint64_t bytes);

  /// 0, or a negative code; -FI_EAGAIN: not now.
  int64_t write(Transfer& transfer);
  /// How many completions there were, or a negative code; -FI_EAVAIL: ask read_error().
  int64_t read(std::span<fi_cq_data_entry> entries) {
    return fi_cq_read(cq_.get(), entries.data(), entries.size());
  }
  /// Ends all that is on its way; nothing may be asked for afterwards.
  void shut() { endpoint_.reset(); }
  struct Failure {
    void* context = nullptr;  // null: of no write of ours
    std::string text;
  };
  Failure read_error();

  std::string text_of(int64_t code) const { return library_.text_of(code); }

 private:
  Port(const Library& library, Info info);
  Status open_objects(uint32_t depth);
  Status read_name();
  Status failed(const char* call, int64_t code) const;

  const Library& library_;
  const Info info_;
  const std::string who_;
  std::string name_;
  std::vector<fi_addr_t> address_of_peer_;
  std::atomic<uint64_t> next_key_ = 1;
  // In the order of opening; closed the other way round.
  Handle<fid_fabric> fabric_;
  Handle<fid_domain> domain_;
  Handle<fid_av> av_;
  Handle<fid_cq> cq_;
  Handle<fid_ep> endpoint_;
};

}  // namespace mkernel::libfabric
