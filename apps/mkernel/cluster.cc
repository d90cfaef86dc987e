#include "cluster.h"

#include <thread>

namespace mkernel::app {

Result<Cluster> Cluster::create(const ClusterOptions& options) {
  Result<std::vector<Context>> contexts = Context::create_virtual(options);
  if (!contexts) return contexts.status();
  Cluster cluster;
  for (Context& context : contexts.value()) {
    Result<Stream> stream = context.create_stream();
    if (!stream) return stream.status();
    cluster.ranks_.push_back(
        std::make_unique<Rank>(Rank{std::move(context), nullptr, std::move(stream).value()}));
    Result<std::unique_ptr<Device>> device = create_device(cluster.ranks_.back()->context);
    if (!device) return device.status();
    cluster.ranks_.back()->device = std::move(device).value();
  }
  return cluster;
}

Status Cluster::on_all_ranks(const std::function<Status(int)>& phase) {
  std::vector<Status> statuses(ranks_.size());
  {
    std::vector<std::jthread> threads;
    for (size_t r = 0; r < ranks_.size(); ++r)
      threads.emplace_back([&, r] { statuses[r] = phase(static_cast<int>(r)); });
  }
  Status first;
  for (const Status& status : statuses) {
    const bool consequence = status.code() == Code::kPeerFailed;
    if (!status && (first.is_ok() || (first.code() == Code::kPeerFailed && !consequence)))
      first = status;
  }
  return first;
}

}  // namespace mkernel::app
