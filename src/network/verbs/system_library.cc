#include "network/verbs/system_library.h"

#include <dlfcn.h>

#include <cstdlib>
#include <system_error>

namespace mkernel::verbs {
namespace {

/// A library that stays: it keeps providers of its own open, which may have registered handlers.
class Library {
 public:
  explicit Library(const char* name)
      : handle_(dlopen(name, RTLD_NOW | RTLD_LOCAL | RTLD_NODELETE)) {
    if (handle_ == nullptr) note_error();
  }
  template <class F>
  void find(const char* name, F* function) {
    if (!missing_.empty()) return;
    void* const symbol = dlsym(handle_, name);
    if (symbol == nullptr) note_error();
    *function = reinterpret_cast<F>(symbol);
  }
  const std::string& missing() const { return missing_; }

 private:
  void note_error() {
    const char* const text = dlerror();
    missing_ = text != nullptr ? text : "unknown error of the loader";
  }

  void* const handle_;
  std::string missing_;
};

void load_efa(VerbsLibrary& verbs) {
  Library efa("libefa.so.1");
  efa.find("efadv_query_device", &verbs.efa_query_device);
  efa.find("efadv_create_qp_ex", &verbs.efa_create_qp_ex);
  efa.find("efadv_query_ah", &verbs.efa_query_ah);
  verbs.efa_missing = efa.missing();
}

}  // namespace

Result<std::shared_ptr<const VerbsLibrary>> load_verbs_library() {
  Library library("libibverbs.so.1");
  auto verbs = std::make_shared<VerbsLibrary>();
  library.find("ibv_get_device_list", &verbs->get_device_list);
  library.find("ibv_free_device_list", &verbs->free_device_list);
  library.find("ibv_get_device_name", &verbs->get_device_name);
  library.find("ibv_open_device", &verbs->open_device);
  library.find("ibv_close_device", &verbs->close_device);
  library.find("ibv_query_device", &verbs->query_device);
  library.find("ibv_query_port", &verbs->query_port);
  library.find("_ibv_query_gid_ex", &verbs->query_gid_ex);
  library.find("ibv_alloc_pd", &verbs->alloc_pd);
  library.find("ibv_dealloc_pd", &verbs->dealloc_pd);
  library.find("ibv_create_cq", &verbs->create_cq);
  library.find("ibv_destroy_cq", &verbs->destroy_cq);
  library.find("ibv_create_qp", &verbs->create_qp);
  library.find("ibv_modify_qp", &verbs->modify_qp);
  library.find("ibv_destroy_qp", &verbs->destroy_qp);
  library.find("ibv_qp_to_qp_ex", &verbs->qp_to_qp_ex);
  library.find("ibv_create_ah", &verbs->create_ah);
  library.find("ibv_destroy_ah", &verbs->destroy_ah);
  library.find("ibv_reg_mr_iova2", &verbs->reg_mr);
  library.find("ibv_reg_dmabuf_mr", &verbs->reg_dmabuf_mr);
  library.find("ibv_dereg_mr", &verbs->dereg_mr);
  library.find("ibv_wc_status_str", &verbs->wc_status_str);
  if (!library.missing().empty()) {
    return Status(Code::kUnavailable, "verbs: " + library.missing());
  }
  load_efa(*verbs);
  return std::shared_ptr<const VerbsLibrary>(std::move(verbs));
}

Status verbs_failed(const char* call, const std::string& device, int error) {
  // Some calls give the negative, some a positive errno.
  return {Code::kInternal, std::string(call) + " on " + device + ": " +
                               std::generic_category().message(std::abs(error))};
}

}  // namespace mkernel::verbs
