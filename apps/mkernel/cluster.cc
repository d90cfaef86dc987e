#include "cluster.h"

#include <algorithm>
#include <cstring>
#include <thread>

#include "operators/cluster.h"

namespace mkernel::app {

Result<Cluster> Cluster::create(const ClusterOptions& options,
                                const std::optional<RendezvousOptions>& rendezvous) {
  Cluster cluster;
  cluster.in_processes_ = rendezvous.has_value();
  if (rendezvous) {
    Result<Context> context = Context::create(options, *rendezvous);
    if (!context) return context.status();
    MK_RETURN_IF_ERROR(cluster.add(std::move(context).value()));
    return cluster;
  }
  Result<std::vector<Context>> contexts = Context::create_virtual(options);
  if (!contexts) return contexts.status();
  for (Context& context : contexts.value()) MK_RETURN_IF_ERROR(cluster.add(std::move(context)));
  return cluster;
}

Status Cluster::add(Context context) {
  ranks_.resize(static_cast<size_t>(context.world_size()));
  auto& place = ranks_[static_cast<size_t>(context.rank())];
  Result<Stream> stream = context.create_stream();
  if (!stream) return stream.status();
  place = std::make_unique<Rank>(Rank{std::move(context), nullptr, std::move(stream).value()});
  Result<std::unique_ptr<Device>> device = create_device(place->context);
  if (!device) return device.status();
  place->device = std::move(device).value();
  return Status::ok();
}

int Cluster::first_here() const {
  const auto first = std::ranges::find_if(ranks_, [](const auto& r) { return r != nullptr; });
  return static_cast<int>(first - ranks_.begin());
}

Status Cluster::on_all_ranks(const std::function<Status(int)>& phase) {
  std::vector<Status> statuses(ranks_.size());
  {
    std::vector<std::jthread> threads;
    for (size_t r = 0; r < ranks_.size(); ++r)
      if (ranks_[r]) threads.emplace_back([&, r] { statuses[r] = phase(static_cast<int>(r)); });
  }
  Status first;
  for (const Status& status : statuses) {
    const bool consequence = status.code() == Code::kPeerFailed;
    if (!status && (first.is_ok() || (first.code() == Code::kPeerFailed && !consequence)))
      first = status;
  }
  return rank(first_here()).context.impl()->cluster().agree("phase", first);
}

Status Cluster::exchange(char* records, size_t bytes) {
  if (!in_processes_) return Status::ok();
  const std::string mine(records + static_cast<size_t>(first_here()) * bytes, bytes);
  const auto all = rank(first_here()).context.impl()->cluster().gather("records", {mine});
  if (!all) return all.status();
  for (size_t r = 0; r < all->size(); ++r) {
    if ((*all)[r].size() != bytes)
      return Status(Code::kInternal, "rank " + std::to_string(r) + " runs another build");
    std::memcpy(records + r * bytes, (*all)[r].data(), bytes);
  }
  return Status::ok();
}

}  // namespace mkernel::app
