#include "transport/fake_verbs.h"

#include <algorithm>
#include <utility>

#include "transport/fake_world.h"

namespace mkernel::test {
namespace {

using World = std::shared_ptr<FakeWorld>;
using verbs::LinkLayer;

/// Whose device it is.
struct Owner {
  World world;
  uint32_t rank;
  size_t device_idx;
};

class FakeMemoryRegion final : public verbs::MemoryRegion {
 public:
  FakeMemoryRegion(World world, uint32_t key) : world_(std::move(world)), key_(key) {}
  ~FakeMemoryRegion() override {
    const std::lock_guard lock(world_->mutex);
    world_->registrations.erase(key_);
  }
  uint32_t lkey() const override { return key_; }
  uint32_t rkey() const override { return key_; }

 private:
  const World world_;
  const uint32_t key_;
};

class FakeCompletionQueue final : public verbs::CompletionQueue {
 public:
  FakeCompletionQueue(Owner owner, uint32_t depth) : owner_(std::move(owner)) {
    queue.depth = depth;
  }
  Result<size_t> poll(std::span<verbs::Completion> completions) override {
    const std::lock_guard lock(owner_.world->mutex);
    owner_.world->move(owner_.rank, owner_.device_idx);
    return owner_.world->poll(queue, completions);
  }

  FakeQueue queue;

 private:
  const Owner owner_;
};

class FakeQueuePair final : public verbs::QueuePair {
 public:
  FakeQueuePair(World world, FakePair pair) : world_(std::move(world)), pair_(std::move(pair)) {
    world_->pairs.emplace(pair_.number, &pair_);
  }
  ~FakeQueuePair() override {
    const std::lock_guard lock(world_->mutex);
    world_->pairs.erase(pair_.number);
    std::erase_if(world_->late, [this](const auto& l) { return l.receiver == &pair_; });
  }
  uint32_t number() const override { return pair_.number; }
  uint32_t inline_bytes() const override { return pair_.inline_bytes; }
  Status connect(const verbs::ConnectConfig& config) override {
    const std::lock_guard lock(world_->mutex);
    if (pair_.state != FakePair::State::kInit) return {Code::kInternal, "fake modify_qp: twice"};
    pair_.connection = config;
    pair_.state = FakePair::State::kReady;
    return Status::ok();
  }
  Status post_send(std::span<const verbs::SendRequest> requests) override {
    const std::lock_guard lock(world_->mutex);
    return world_->post(pair_, requests);
  }
  Status post_receive(std::span<const verbs::ReceiveRequest> requests) override {
    const std::lock_guard lock(world_->mutex);
    if (pair_.ready.size() + requests.size() > pair_.config.receive_depth) {
      world_->violate("more receives than a queue pair holds");
      return {Code::kInternal, "fake post_recv: Cannot allocate memory"};
    }
    pair_.ready.insert(pair_.ready.end(), requests.begin(), requests.end());
    return Status::ok();
  }

 private:
  const World world_;
  FakePair pair_;
};

class FakeOpenDevice final : public verbs::Device {
 public:
  explicit FakeOpenDevice(Owner owner)
      : owner_(std::move(owner)), config_(owner_.world->device(owner_.device_idx)) {}

  Result<verbs::DeviceLimits> limits() override {
    return verbs::DeviceLimits{.max_sends = config_.max_depth,
                               .max_receives = config_.max_depth,
                               .max_cqe = config_.max_cqe,
                               .max_queue_pairs = config_.max_queue_pairs};
  }
  Result<verbs::PortInfo> port(uint32_t port) override {
    if (port != 1) return Status(Code::kUnavailable, config_.name + ": no such port");
    return verbs::PortInfo{
        .active = config_.is_active,
        .state = config_.is_active ? "ACTIVE" : "DOWN",
        .link_layer = config_.link_layer,
        .lid = lid(),
        .mtu_bytes = config_.mtu_bytes,
        .max_message_bytes = config_.max_message_bytes,
        .num_gids = static_cast<uint32_t>(std::max<size_t>(config_.gids.size(), 1))};
  }
  Result<std::optional<verbs::GidEntry>> gid(uint32_t, uint32_t index) override {
    if (config_.unreadable_gids.contains(index)) {
      return Status(Code::kInternal, "fake query_gid: Input/output error");
    }
    if (!config_.gids.empty()) return config_.gids[index];
    return std::optional(verbs::GidEntry{owner_.world->gid(owner_.rank, owner_.device_idx, index),
                                         verbs::GidType::kRoceV2});
  }
  Result<verbs::EfaInfo> efa() override {
    if (config_.link_layer != LinkLayer::kEfa) {
      return Status(Code::kUnsupported, "device " + config_.name + " is no EFA device");
    }
    return verbs::EfaInfo{.can_write = config_.can_write,
                          .retries_rnr = true,
                          .max_write_bytes = config_.max_message_bytes};
  }

  Result<std::unique_ptr<verbs::CompletionQueue>> create_completion_queue(uint32_t depth) override {
    if (depth == 0 || depth > config_.max_cqe) return invalid("create_cq");
    return std::unique_ptr<verbs::CompletionQueue>(new FakeCompletionQueue(owner_, depth));
  }
  Result<std::unique_ptr<verbs::QueuePair>> create_queue_pair(
      const verbs::QueuePairConfig& c) override {
    const bool is_efa = config_.link_layer == LinkLayer::kEfa;
    if (c.send_depth > config_.max_depth || c.receive_depth > config_.max_depth ||
        is_efa != (c.service == verbs::Service::kDatagram)) {
      return invalid("create_qp");
    }
    const std::lock_guard lock(owner_.world->mutex);
    FakePair pair{.number = owner_.world->next_number++,
                  .rank = owner_.rank,
                  .device_idx = owner_.device_idx,
                  .config = c,
                  .connection = {},
                  .inline_bytes = is_efa ? 0 : config_.inline_bytes,
                  .sends = &static_cast<FakeCompletionQueue*>(c.send_completions)->queue,
                  .receives = &static_cast<FakeCompletionQueue*>(c.receive_completions)->queue,
                  .poster = {},
                  .posted = {},
                  .ready = {},
                  .occupied = {}};
    return std::unique_ptr<verbs::QueuePair>(new FakeQueuePair(owner_.world, std::move(pair)));
  }
  Result<std::unique_ptr<verbs::AddressHandle>> create_address_handle(
      uint32_t, uint32_t, const verbs::Gid& remote) override {
    const std::lock_guard lock(owner_.world->mutex);
    const auto [it, is_new] = owner_.world->handles.try_emplace(
        {owner_.rank, owner_.device_idx, remote}, owner_.world->next_number);
    if (is_new) ++owner_.world->next_number;
    return std::unique_ptr<verbs::AddressHandle>(new FakeHandle(it->second, remote));
  }
  Result<std::unique_ptr<verbs::MemoryRegion>> register_memory(
      void* data, uint64_t bytes, const verbs::Access& access) override {
    if (owner_.world->config.is_foreign(data) && !config_.takes_foreign) {
      return Status(Code::kInternal, "fake reg_mr: Bad address");
    }
    return add(reinterpret_cast<uint64_t>(data), bytes, access, false);
  }
  Result<std::unique_ptr<verbs::MemoryRegion>> register_dmabuf(
      int fd, uint64_t, uint64_t bytes, uint64_t address, const verbs::Access& access) override {
    if (fd < 0 || !config_.takes_dmabuf) {
      return Status(Code::kInternal, "fake reg_dmabuf_mr: Operation not supported");
    }
    return add(address, bytes, access, true);
  }

 private:
  static Status invalid(const std::string& call) {
    return {Code::kInternal, "fake " + call + ": Invalid argument"};
  }
  std::unique_ptr<verbs::MemoryRegion> add(uint64_t address, uint64_t bytes,
                                           const verbs::Access& access, bool by_dmabuf) {
    const std::lock_guard lock(owner_.world->mutex);
    uint32_t key = 0;
    while (key == 0 || owner_.world->registrations.contains(key)) {
      key = static_cast<uint32_t>(owner_.world->random());
    }
    owner_.world->registrations[key] = {owner_.rank, config_.name, address,
                                        bytes,       access,       by_dmabuf};
    return std::make_unique<FakeMemoryRegion>(owner_.world, key);
  }
  uint32_t lid() const { return owner_.rank * 16 + static_cast<uint32_t>(owner_.device_idx) + 1; }

  const Owner owner_;
  const FakeDevice& config_;
};

class FakeApi final : public verbs::Api {
 public:
  FakeApi(World world, uint32_t rank) : world_(std::move(world)), rank_(rank) {}
  Result<std::vector<std::string>> devices() override {
    std::vector<std::string> names;
    for (const FakeDevice& d : world_->config.devices) names.push_back(d.name);
    return names;
  }
  Result<std::unique_ptr<verbs::Device>> open(const std::string& name) override {
    for (size_t i = 0; i < world_->config.devices.size(); ++i) {
      if (world_->device(i).name != name) continue;
      return std::unique_ptr<verbs::Device>(new FakeOpenDevice({world_, rank_, i}));
    }
    return Status(Code::kUnavailable, "verbs: no device " + name);
  }

 private:
  const World world_;
  const uint32_t rank_;
};

}  // namespace

FakeFabric::FakeFabric(const FakeConfig& config) : world_(std::make_shared<FakeWorld>(config)) {}

std::shared_ptr<verbs::Api> FakeFabric::api(uint32_t rank) {
  return std::make_shared<FakeApi>(world_, rank);
}

void FakeFabric::hold(const std::string& device, bool is_held) {
  const std::lock_guard lock(world_->mutex);
  if (is_held) {
    world_->held.insert(device);
  } else {
    world_->held.erase(device);
  }
}

void FakeFabric::kill(uint32_t rank) {
  const std::lock_guard lock(world_->mutex);
  world_->dead.insert(rank);
}

void FakeFabric::fail_request(uint64_t n, const char* error) {
  const std::lock_guard lock(world_->mutex);
  world_->failing[world_->num_requests + n] = error;
}

void FakeFabric::revoke_keys(uint32_t rank) {
  const std::lock_guard lock(world_->mutex);
  std::erase_if(world_->registrations, [rank](const auto& r) { return r.second.rank == rank; });
}

uint64_t FakeFabric::num_doorbells() const {
  const std::lock_guard lock(world_->mutex);
  return world_->num_doorbells;
}

uint64_t FakeFabric::num_requests() const {
  const std::lock_guard lock(world_->mutex);
  return world_->num_requests;
}

uint64_t FakeFabric::num_signaled() const {
  const std::lock_guard lock(world_->mutex);
  return world_->num_signaled;
}

std::vector<FakeRegistration> FakeFabric::registrations() const {
  const std::lock_guard lock(world_->mutex);
  std::vector<FakeRegistration> list;
  for (const auto& [key, registration] : world_->registrations) list.push_back(registration);
  return list;
}

std::vector<std::string> FakeFabric::violations() const {
  const std::lock_guard lock(world_->mutex);
  return world_->violations;
}

}  // namespace mkernel::test
