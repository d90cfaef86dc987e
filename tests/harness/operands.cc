#include "tests/harness/operands.h"

#include <iterator>

#include "core/float16.h"

namespace mkernel::harness {
namespace {

void random_network(std::mt19937& random, ClusterOptions& cluster) {
  LoopbackOptions& link = cluster.loopback;
  link.order = pick(random, 0, 1) ? LinkOrder::kReordered : LinkOrder::kInOrder;
  link.seed = random();
  if (pick(random, 0, 2) == 0) {
    link.link_us = pick(random, 1, 300);
    link.link_gbs = 0.05 * pick(random, 1, 20);
  }
  if (pick(random, 0, 3) == 0) link.late_us = pick(random, 100, 3000);
  if (pick(random, 0, 3) == 0) {
    for (int i = 0; i < 3; ++i)
      link.stalled_ranks.push_back(pick(random, 0, cluster.nodes * cluster.gpus - 1));
    link.stall_us = pick(random, 100, 3000);
  }
}

}  // namespace

int pick(std::mt19937& random, int low, int high) {
  return std::uniform_int_distribution<int>(low, high)(random);
}

Bits random_matrix(std::mt19937& random, int64_t rows, int64_t cols, int64_t ld, DType dtype) {
  Bits bits(static_cast<size_t>(rows * ld), kCanary);
  std::uniform_int_distribution<int> value(-4, 4);
  for (int64_t i = 0; i < rows; ++i)
    for (int64_t j = 0; j < cols; ++j)
      bits[static_cast<size_t>(i * ld + j)] = from_float(static_cast<float>(value(random)), dtype);
  return bits;
}

ClusterOptions random_cluster(std::mt19937& random) {
  static constexpr int kClusters[][2] = {{1, 1}, {1, 2}, {1, 8}, {2, 1}, {2, 4},
                                         {3, 2}, {4, 4}, {3, 3}, {5, 1}, {1, 3}};
  ClusterOptions options;
  const auto& cluster = kClusters[pick(random, 0, std::size(kClusters) - 1)];
  options.nodes = cluster[0];
  options.gpus = cluster[1];
  options.timeout_us = 60'000'000 / kLimitScale;
  options.contact_timeout_us = options.timeout_us;
  // Half of the runs cross the wrap of the epoch.
  options.first_epoch = pick(random, 0, 1) ? 0u - static_cast<uint32_t>(pick(random, 0, 3)) : 0u;
  random_network(random, options);
  return options;
}

}  // namespace mkernel::harness
