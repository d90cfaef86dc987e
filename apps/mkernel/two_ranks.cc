#include "two_ranks.h"

#include <cstring>

#include "net_pair.h"

namespace mkernel::app {

Result<std::unique_ptr<TwoRanks>> TwoRanks::create() {
  std::unique_ptr<TwoRanks> ranks(new TwoRanks);
  for (uint32_t rank = 0; rank < 2; ++rank) MK_RETURN_IF_ERROR(ranks->add_rank(rank));
  return ranks;
}

Status TwoRanks::add_rank(uint32_t rank) {
  constexpr uint32_t kNumFlags = 64;
  Result<std::unique_ptr<SymmetricHeap>> heap = SymmetricHeap::create(*memory_, rank, kNetBytes);
  if (!heap) return heap.status();
  heaps_.push_back(std::move(heap).value());
  Result<HeapRegionPtr> region = heaps_.back()->allocate(kNetBytes);
  if (!region) return region.status();
  regions_.push_back(std::move(region).value());
  Result<FlagRangePtr> flags = heaps_.back()->allocate_flags(kNumFlags, 0);
  if (!flags) return flags.status();
  flags_.push_back(std::move(flags).value());
  std::memset(data(rank), 0, kNetBytes);
  return Status::ok();
}

Result<Endpoints> TwoRanks::connect(const std::string& transport, const ClusterOptions& options) {
  SymmetricHeap* const heaps[] = {heaps_[0].get(), heaps_[1].get()};
  const HeapRegion* const regions[] = {regions_[0].get(), regions_[1].get()};
  return create_connected(transport, options, heaps, regions);
}

}  // namespace mkernel::app
