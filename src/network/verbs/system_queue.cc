// Completion queues and queue pairs of the system: the hot path.
#include <arpa/inet.h>

#include <algorithm>
#include <array>
#include <bit>
#include <cerrno>
#include <cstring>
#include <utility>
#include <vector>

#include "network/verbs/system_device.h"

namespace mkernel::verbs {
namespace {

constexpr uint8_t kRnrTimer = 5;  // 0.06 ms until a sender that met no receive comes again
constexpr uint8_t kHopLimit = 64;

class SystemQueue final : public CompletionQueue {
 public:
  SystemQueue(OwnedQueue queue, std::string name)
      : queue_(std::move(queue)), name_(std::move(name)) {}
  ibv_cq* get() const { return queue_.get(); }

  Result<size_t> poll(std::span<Completion> completions) override {
    const int wanted = static_cast<int>(std::min(completions.size(), found_.size()));
    const int count = ibv_poll_cq(queue_.get(), wanted, found_.data());
    if (count < 0) return verbs_failed("ibv_poll_cq", name_, count);
    for (int i = 0; i < count; ++i) {
      completions[static_cast<size_t>(i)] = translate(found_[static_cast<size_t>(i)]);
    }
    return static_cast<size_t>(count);
  }

 private:
  Completion translate(const ibv_wc& wc) const {
    Completion completion{.id = wc.wr_id};
    if (wc.status != IBV_WC_SUCCESS) {
      completion.outcome = wc.status == IBV_WC_WR_FLUSH_ERR ? Completion::Outcome::kFlushed
                                                            : Completion::Outcome::kError;
      completion.error = queue_.get_deleter().library->wc_status_str(wc.status);
    } else if ((wc.wc_flags & IBV_WC_WITH_IMM) != 0 && wc.opcode == IBV_WC_RECV_RDMA_WITH_IMM) {
      completion.immediate = ntohl(wc.imm_data);
      completion.source_handle = wc.slid;  // on EFA the number of the handle
      completion.source_number = wc.src_qp;
    }
    return completion;
  }

  const OwnedQueue queue_;
  const std::string name_;
  std::array<ibv_wc, 32> found_;
};

/// What both services have in common; the way to post writes is left to them.
class SystemPair : public QueuePair {
 public:
  SystemPair(OwnedPair pair, std::string name, uint32_t inline_bytes)
      : pair_(std::move(pair)), name_(std::move(name)), inline_bytes_(inline_bytes) {}
  uint32_t number() const override { return pair_->qp_num; }
  uint32_t inline_bytes() const override { return inline_bytes_; }

  Status post_receive(std::span<const ReceiveRequest> requests) override {
    for (const ReceiveRequest& r : requests) {
      ibv_sge place{.addr = r.address, .length = r.bytes, .lkey = r.lkey};
      ibv_recv_wr wr{.wr_id = r.id, .next = nullptr, .sg_list = &place, .num_sge = 1};
      ibv_recv_wr* bad = nullptr;
      MK_VERBS_CHECK("ibv_post_recv", name_, ibv_post_recv(pair_.get(), &wr, &bad));
    }
    return Status::ok();
  }

 protected:
  Status modify(ibv_qp_attr attributes, ibv_qp_state state, int mask) {
    attributes.qp_state = state;
    MK_VERBS_CHECK(
        "ibv_modify_qp", name_,
        pair_.get_deleter().library->modify_qp(pair_.get(), &attributes, mask | IBV_QP_STATE));
    return Status::ok();
  }
  ibv_qp* pair() const { return pair_.get(); }
  const std::string& name() const { return name_; }

 private:
  const OwnedPair pair_;
  const std::string name_;
  const uint32_t inline_bytes_;
};

class ConnectedPair final : public SystemPair {
 public:
  using SystemPair::SystemPair;

  Status init(const QueuePairConfig& config) {
    ibv_qp_attr attributes{};
    attributes.port_num = static_cast<uint8_t>(config.port);
    attributes.qp_access_flags = IBV_ACCESS_REMOTE_WRITE;
    return modify(attributes, IBV_QPS_INIT, IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS);
  }

  Status connect(const ConnectConfig& c) override {
    ibv_qp_attr receive{};
    receive.path_mtu = static_cast<ibv_mtu>(std::countr_zero(c.mtu_bytes / 128));
    receive.dest_qp_num = c.remote_number;
    receive.rq_psn = c.remote_sequence;
    receive.max_dest_rd_atomic = 1;
    receive.min_rnr_timer = kRnrTimer;
    receive.ah_attr.port_num = static_cast<uint8_t>(c.port);
    receive.ah_attr.dlid = static_cast<uint16_t>(c.remote_lid);
    receive.ah_attr.sl = static_cast<uint8_t>(c.service_level);
    receive.ah_attr.is_global = c.is_global ? 1 : 0;
    if (c.is_global) {
      receive.ah_attr.grh.sgid_index = static_cast<uint8_t>(c.gid_index);
      receive.ah_attr.grh.hop_limit = kHopLimit;
      receive.ah_attr.grh.traffic_class = static_cast<uint8_t>(c.traffic_class);
      std::memcpy(receive.ah_attr.grh.dgid.raw, c.remote_gid.data(), c.remote_gid.size());
    }
    MK_RETURN_IF_ERROR(modify(receive, IBV_QPS_RTR,
                              IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN | IBV_QP_RQ_PSN |
                                  IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER));
    ibv_qp_attr send{};
    send.timeout = static_cast<uint8_t>(c.timeout);
    send.retry_cnt = static_cast<uint8_t>(c.retry_count);
    send.rnr_retry = static_cast<uint8_t>(c.rnr_retry);
    send.sq_psn = c.sequence;
    send.max_rd_atomic = 1;
    return modify(send, IBV_QPS_RTS,
                  IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY | IBV_QP_SQ_PSN |
                      IBV_QP_MAX_QP_RD_ATOMIC);
  }

  Status post_send(std::span<const SendRequest> requests) override {
    chain_.resize(std::max(chain_.size(), requests.size()));
    sources_.resize(chain_.size());
    for (size_t i = 0; i < requests.size(); ++i) {
      const SendRequest& r = requests[i];
      sources_[i] = {.addr = r.local_address, .length = r.bytes, .lkey = r.lkey};
      ibv_send_wr& wr = chain_[i] = {};
      wr.wr_id = r.id;
      wr.next = i + 1 < requests.size() ? &chain_[i + 1] : nullptr;
      wr.sg_list = &sources_[i];
      wr.num_sge = r.bytes > 0 ? 1 : 0;  // a length of 0 may stand for 2 GiB
      wr.opcode = r.immediate ? IBV_WR_RDMA_WRITE_WITH_IMM : IBV_WR_RDMA_WRITE;
      if (r.signaled) wr.send_flags |= IBV_SEND_SIGNALED;
      if (r.is_inline) wr.send_flags |= IBV_SEND_INLINE;
      wr.imm_data = htonl(r.immediate.value_or(0));
      wr.wr.rdma.remote_addr = r.remote_address;
      wr.wr.rdma.rkey = r.rkey;
    }
    ibv_send_wr* bad = nullptr;
    MK_VERBS_CHECK("ibv_post_send", name(), ibv_post_send(pair(), chain_.data(), &bad));
    return Status::ok();
  }

 private:
  std::vector<ibv_send_wr> chain_;
  std::vector<ibv_sge> sources_;
};

/// SRD has its writes only in the newer way of posting.
class DatagramPair final : public SystemPair {
 public:
  DatagramPair(OwnedPair pair, ibv_qp_ex* extended, std::string name, bool retries_rnr)
      : SystemPair(std::move(pair), std::move(name), 0),
        extended_(extended),
        retries_rnr_(retries_rnr) {}

  Status init(const QueuePairConfig& config) {
    ibv_qp_attr attributes{};
    attributes.port_num = static_cast<uint8_t>(config.port);
    attributes.qkey = config.qkey;
    return modify(attributes, IBV_QPS_INIT, IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_QKEY);
  }

  Status connect(const ConnectConfig& c) override {
    MK_RETURN_IF_ERROR(modify({}, IBV_QPS_RTR, 0));
    ibv_qp_attr send{};
    send.sq_psn = c.sequence;
    send.rnr_retry = static_cast<uint8_t>(c.rnr_retry);
    return modify(send, IBV_QPS_RTS, IBV_QP_SQ_PSN | (retries_rnr_ ? IBV_QP_RNR_RETRY : 0));
  }

  Status post_send(std::span<const SendRequest> requests) override {
    ibv_wr_start(extended_);
    for (const SendRequest& r : requests) {
      extended_->wr_id = r.id;
      extended_->wr_flags = IBV_SEND_SIGNALED;
      if (r.immediate) {
        ibv_wr_rdma_write_imm(extended_, r.rkey, r.remote_address, htonl(*r.immediate));
      } else {
        ibv_wr_rdma_write(extended_, r.rkey, r.remote_address);
      }
      ibv_wr_set_sge(extended_, r.lkey, r.local_address, r.bytes);
      ibv_wr_set_ud_addr(extended_, system_handle(*r.handle), r.remote_number, r.remote_qkey);
    }
    MK_VERBS_CHECK("ibv_wr_complete", name(), ibv_wr_complete(extended_));
    return Status::ok();
  }

 private:
  ibv_qp_ex* const extended_;
  const bool retries_rnr_;
};

ibv_qp_cap capacity_of(const QueuePairConfig& config, uint32_t inline_bytes) {
  return {.max_send_wr = config.send_depth,
          .max_recv_wr = config.receive_depth,
          .max_send_sge = 1,
          .max_recv_sge = 1,
          .max_inline_data = inline_bytes};
}

Result<std::unique_ptr<QueuePair>> create_connected(const SystemContext& system,
                                                    const QueuePairConfig& config) {
  ibv_qp_init_attr attributes{};
  attributes.send_cq = static_cast<SystemQueue*>(config.send_completions)->get();
  attributes.recv_cq = static_cast<SystemQueue*>(config.receive_completions)->get();
  attributes.qp_type = IBV_QPT_RC;
  ibv_qp* created = nullptr;
  for (const uint32_t inline_bytes : {config.inline_bytes, 0u}) {  // not every device has inline
    attributes.cap = capacity_of(config, inline_bytes);
    created = system.library->create_qp(system.domain.get(), &attributes);
    if (created != nullptr) break;
  }
  OwnedPair owned(created, {system.library});
  if (owned == nullptr) return verbs_failed("ibv_create_qp", system.name, errno);
  auto pair = std::make_unique<ConnectedPair>(std::move(owned), system.name,
                                              attributes.cap.max_inline_data);
  MK_RETURN_IF_ERROR(pair->init(config));
  return std::unique_ptr<QueuePair>(std::move(pair));
}

Result<std::unique_ptr<QueuePair>> create_datagram(const SystemContext& system,
                                                   const QueuePairConfig& config) {
  Result<efadv_device_attr> efa = query_efa(system);
  if (!efa) return efa.status();
  ibv_qp_init_attr_ex attributes{};
  attributes.send_cq = static_cast<SystemQueue*>(config.send_completions)->get();
  attributes.recv_cq = static_cast<SystemQueue*>(config.receive_completions)->get();
  attributes.cap = capacity_of(config, 0);
  attributes.qp_type = IBV_QPT_DRIVER;
  attributes.comp_mask = IBV_QP_INIT_ATTR_PD | IBV_QP_INIT_ATTR_SEND_OPS_FLAGS;
  attributes.pd = system.domain.get();
  attributes.send_ops_flags = IBV_QP_EX_WITH_RDMA_WRITE | IBV_QP_EX_WITH_RDMA_WRITE_WITH_IMM;
  efadv_qp_init_attr kind{};
  kind.driver_qp_type = EFADV_QP_DRIVER_TYPE_SRD;
  OwnedPair owned(
      system.library->efa_create_qp_ex(system.context.get(), &attributes, &kind, sizeof kind),
      {system.library});
  if (owned == nullptr) return verbs_failed("efadv_create_qp_ex", system.name, errno);
  ibv_qp_ex* const extended = system.library->qp_to_qp_ex(owned.get());
  if (extended == nullptr) return verbs_failed("ibv_qp_to_qp_ex", system.name, EOPNOTSUPP);
  auto pair =
      std::make_unique<DatagramPair>(std::move(owned), extended, system.name,
                                     (efa->device_caps & EFADV_DEVICE_ATTR_CAPS_RNR_RETRY) != 0);
  MK_RETURN_IF_ERROR(pair->init(config));
  return std::unique_ptr<QueuePair>(std::move(pair));
}

}  // namespace

Result<std::unique_ptr<CompletionQueue>> create_system_queue(const SystemContext& system,
                                                             uint32_t depth) {
  OwnedQueue queue(
      system.library->create_cq(system.context.get(), static_cast<int>(depth), nullptr, nullptr, 0),
      {system.library});
  if (queue == nullptr) return verbs_failed("ibv_create_cq", system.name, errno);
  return std::unique_ptr<CompletionQueue>(new SystemQueue(std::move(queue), system.name));
}

Result<std::unique_ptr<QueuePair>> create_system_pair(const SystemContext& system,
                                                      const QueuePairConfig& config) {
  return config.service == Service::kConnected ? create_connected(system, config)
                                               : create_datagram(system, config);
}

}  // namespace mkernel::verbs
