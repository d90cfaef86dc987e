#include <string>
#include <utility>

#include "network/libfabric/endpoint.h"
#include "network/libfabric/libfabric.h"
#include "network/libfabric/provider.h"
#include "network/staged.h"

namespace mkernel {
namespace {

constexpr uint32_t kMaxRanks = 1u << 16;  // ranks are named with 16 bits
constexpr uint32_t kMaxDepth = 1u << 16;
constexpr uint32_t kMaxSlots = 1u << 14;  // see staged.h
constexpr uint64_t kMaxChunkBytes = uint64_t{1} << 30;

Status check(const LibfabricOptions& o, uint32_t rank, uint32_t num_ranks) {
  const auto refuse = [](const std::string& what, uint64_t value, const std::string& allowed) {
    return Status(Code::kInvalidArgument,
                  "libfabric: " + what + " = " + std::to_string(value) + ": " + allowed);
  };
  if (num_ranks == 0 || num_ranks > kMaxRanks) return refuse("ranks", num_ranks, "1 to 65536");
  if (rank >= num_ranks) {
    return refuse("rank", rank, "there are " + std::to_string(num_ranks));
  }
  if (o.max_in_flight == 0 || o.max_in_flight > kMaxDepth) {
    return refuse("max_in_flight", o.max_in_flight, "1 to 65536");
  }
  if (o.staging_slots == 0 || o.staging_slots > kMaxSlots) {
    return refuse("staging_slots", o.staging_slots, "1 to 16384");
  }
  if (o.staging_chunk_bytes == 0 || o.staging_chunk_bytes > kMaxChunkBytes) {
    return refuse("staging_chunk_bytes", o.staging_chunk_bytes, "1 to 2^30");
  }
  return Status::ok();
}

/// The same endpoint, on host memory, below bounce buffers.
Result<std::unique_ptr<Endpoint>> create_bounced(const LibfabricOptions& options,
                                                 SymmetricHeap& heap, uint32_t rank,
                                                 uint32_t num_ranks, uint64_t limit_ns) {
  LibfabricOptions below = options;
  below.staging = Staging::kAuto;  // of memory that is the host's
  return create_staged({.rank = rank,
                        .num_ranks = num_ranks,
                        .slots = options.staging_slots,
                        .piece_bytes = options.staging_chunk_bytes,
                        .max_in_flight = options.max_in_flight,
                        .limit_ns = limit_ns},
                       heap, [&](SymmetricHeap& bounce) {
                         return create_libfabric(below, bounce, rank, num_ranks, limit_ns);
                       });
}

}  // namespace

Result<std::unique_ptr<Endpoint>> create_libfabric(const LibfabricOptions& options,
                                                   SymmetricHeap& heap, uint32_t rank,
                                                   uint32_t num_ranks, uint64_t limit_ns) {
  const auto name_rank = [&](const Status& why) {
    return Status(why.code(), "rank " + std::to_string(rank) + ": " + why.message());
  };
  if (const Status ok = check(options, rank, num_ranks); !ok) return name_rank(ok);
  if (options.staging == Staging::kAlways || !heap.memory().host_accessible()) {
    return create_bounced(options, heap, rank, num_ranks, limit_ns);
  }
  const Result<libfabric::Library>& library = libfabric::library();
  if (!library) return name_rank(library.status());
  Result<libfabric::Info> info = libfabric::choose_provider(library.value(), options);
  if (!info) return name_rank(info.status());
  auto port = libfabric::Port::open(library.value(), std::move(*info), options.max_in_flight);
  if (!port) return name_rank(port.status());
  const libfabric::EndpointConfig config{.rank = rank,
                                         .num_ranks = num_ranks,
                                         .max_in_flight = options.max_in_flight,
                                         .limit_ns = limit_ns};
  auto endpoint = std::make_unique<libfabric::LibfabricEndpoint>(config, heap, std::move(*port));
  if (const Status opened = endpoint->open_path(options); !opened) return name_rank(opened);
  return std::unique_ptr<Endpoint>(std::move(endpoint));
}

}  // namespace mkernel
