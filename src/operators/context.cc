#include <mkernel/context.h>

#include "operators/cluster.h"

namespace mkernel {

Stream::Stream(std::unique_ptr<detail::StreamImpl> impl) : impl_(std::move(impl)) {}
Stream::~Stream() = default;
Stream::Stream(Stream&&) noexcept = default;
Stream& Stream::operator=(Stream&&) noexcept = default;
StreamHandle Stream::handle() const { return impl_->handle(); }

Buffer::Buffer(std::shared_ptr<detail::Rank> rank, void* data, uint64_t bytes)
    : rank_(std::move(rank)), data_(data), bytes_(bytes) {}

Buffer::Buffer(Buffer&& other) noexcept
    : rank_(std::move(other.rank_)),
      data_(std::exchange(other.data_, nullptr)),
      bytes_(other.bytes_) {}

Buffer& Buffer::operator=(Buffer&& other) noexcept {
  std::swap(rank_, other.rank_);
  std::swap(data_, other.data_);
  std::swap(bytes_, other.bytes_);
  return *this;
}

Buffer::~Buffer() {
  if (data_ != nullptr) rank_->machine().memory().release(data_);
}

Context::Context(std::shared_ptr<detail::Rank> rank) : rank_(std::move(rank)) {}
Context::Context(Context&&) noexcept = default;
Context& Context::operator=(Context&&) noexcept = default;
Context::~Context() = default;

Result<std::vector<Context>> Context::create_virtual(const ClusterOptions& options) {
  auto cluster = detail::Cluster::create(options);
  if (!cluster) return cluster.status();
  std::vector<Context> contexts;
  for (uint32_t rank = 0; rank < (*cluster)->shape().world(); ++rank)
    contexts.push_back(Context(std::make_shared<detail::Rank>(*cluster, rank)));
  return contexts;
}

Result<Context> Context::create(const ClusterOptions& options,
                                const RendezvousOptions& rendezvous) {
  auto cluster = detail::Cluster::join(options, rendezvous);
  if (!cluster) return cluster.status();
  return Context(std::make_shared<detail::Rank>(*cluster, rendezvous.rank));
}

int Context::rank() const { return static_cast<int>(rank_->rank()); }
int Context::world_size() const { return static_cast<int>(rank_->cluster().shape().world()); }
int Context::nodes() const { return rank_->cluster().options().nodes; }
int Context::gpus() const { return rank_->cluster().options().gpus; }
DeviceKind Context::device() const { return rank_->cluster().options().device; }
std::string Context::transport() const { return rank_->cluster().transport(); }

Result<Stream> Context::create_stream() {
  auto impl = rank_->machine().create_stream();
  if (!impl) return impl.status();
  return Stream(std::move(impl.value()));
}

Result<Buffer> Context::allocate(uint64_t bytes) {
  auto data = rank_->machine().memory().allocate(bytes == 0 ? 1 : bytes);
  if (!data) return data.status();
  return Buffer(rank_, *data, bytes);
}

Status Context::upload(void* device, const void* host, uint64_t bytes) {
  return rank_->machine().memory().upload(device, host, bytes);
}

Status Context::download(void* host, const void* device, uint64_t bytes) {
  return rank_->machine().memory().download(host, device, bytes);
}

Status Context::synchronize(StreamHandle stream) {
  MK_RETURN_IF_ERROR(rank_->machine().synchronize(stream));
  return rank_->cluster().status();
}

Result<RankStatistics> Context::statistics() const {
  return rank_->cluster().statistics(rank_->rank());
}

}  // namespace mkernel
