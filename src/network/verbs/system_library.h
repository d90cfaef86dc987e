// The functions of libibverbs.so.1 and libefa.so.1, found at run time. Posting and polling are not
// among them: the headers have these as calls through the opened device.
#pragma once
#include <infiniband/efadv.h>
#include <infiniband/verbs.h>

#include <memory>
#include <string>

#include <mkernel/status.h>

namespace mkernel::verbs {

/// Named as in the headers, without the prefix.
struct VerbsLibrary {
  decltype(&::ibv_get_device_list) get_device_list;
  decltype(&::ibv_free_device_list) free_device_list;
  decltype(&::ibv_get_device_name) get_device_name;
  decltype(&::ibv_open_device) open_device;
  decltype(&::ibv_close_device) close_device;
  decltype(&::ibv_query_device) query_device;
  decltype(&::ibv_query_port) query_port;
  decltype(&::_ibv_query_gid_ex) query_gid_ex;
  decltype(&::ibv_alloc_pd) alloc_pd;
  decltype(&::ibv_dealloc_pd) dealloc_pd;
  decltype(&::ibv_create_cq) create_cq;
  decltype(&::ibv_destroy_cq) destroy_cq;
  decltype(&::ibv_create_qp) create_qp;
  decltype(&::ibv_modify_qp) modify_qp;
  decltype(&::ibv_destroy_qp) destroy_qp;
  decltype(&::ibv_qp_to_qp_ex) qp_to_qp_ex;
  decltype(&::ibv_create_ah) create_ah;
  decltype(&::ibv_destroy_ah) destroy_ah;
  decltype(&::ibv_reg_mr_iova2) reg_mr;
  decltype(&::ibv_reg_dmabuf_mr) reg_dmabuf_mr;
  decltype(&::ibv_dereg_mr) dereg_mr;
  decltype(&::ibv_wc_status_str) wc_status_str;

  // Null where libefa.so.1 is not there, and then efa_missing says why.
  decltype(&::efadv_query_device) efa_query_device = nullptr;
  decltype(&::efadv_create_qp_ex) efa_create_qp_ex = nullptr;
  decltype(&::efadv_query_ah) efa_query_ah = nullptr;
  std::string efa_missing;
};

/// Errors: unavailable.
Result<std::shared_ptr<const VerbsLibrary>> load_verbs_library();

/// "ibv_create_cq on mlx5_0: Cannot allocate memory".
Status verbs_failed(const char* call, const std::string& device, int error);

}  // namespace mkernel::verbs

/// Returns verbs_failed() from the enclosing function if a call that gives an errno gave one.
/// `name` is of the call as it stands in manuals, `device` of the device.
#define MK_VERBS_CHECK(name, device, call)                            \
  do {                                                                \
    if (const int mk_error_ = (call); mk_error_ != 0)                 \
      return ::mkernel::verbs::verbs_failed(name, device, mk_error_); \
  } while (false)
