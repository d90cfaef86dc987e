// Launches of AllGather+GEMM, back to back, on a virtual cluster, with every element of every one
// compared. Inputs are small integers, so sums are exact in fp32 and the rounded result
// must match bit for bit.
#pragma once
#include <gtest/gtest.h>

#include <chrono>
#include <cstdint>
#include <functional>
#include <ostream>
#include <random>
#include <string>
#include <vector>

#include <mkernel/operators.h>

#include "tests/harness/operands.h"

namespace mkernel::harness {

struct GatherCase {
  ClusterOptions cluster;
  AllGatherGemmShape shape;
  AllGatherGemmTuning tuning;
  int pad_a = 0, pad_b = 0, pad_c = 0;  // leading dimension beyond the columns, in elements
  int iterations = 2;                   // launches without a host's wait between them
  /// kByRank: all launches of a rank, then those of the next: the first ranks run as far ahead of
  /// the last one as the protocol lets them. kByLaunch: for more launches than a queue holds.
  enum class Order { kByRank, kByLaunch };
  Order order = Order::kByRank;
  std::chrono::microseconds pause{0};  // between one rank's launches and the next one's
  uint32_t seed = 1;
  std::function<void()> before_launches, after_launches;  // may be empty
};

std::ostream& operator<<(std::ostream& out, const GatherCase& c);

/// The largest sizes of random cases: some tiles of the machine that runs them.
struct CaseLimits {
  int rows_per_rank = 40;
  int cols = 90;
  int depth = 100;
  int blocks = 4;
  int tile_widths[2] = {32, 16};
  bool copy_engines = true;
  uint64_t tile_workspace = 128 << 10;  // what one tile per rank needs on any cluster, at most
};

/// A random cluster, shape and network, from one rank to 16.
GatherCase random_case(std::mt19937& random, const CaseLimits& limits = {});

/// Runs the case; adds a gtest failure that names the first wrong element.
/// Returns the contexts' status at the end.
Status run_case(const GatherCase& c);

}  // namespace mkernel::harness
