// Launches of GEMM+ReduceScatter or GEMM+AllReduce, back to back, on a virtual cluster, with every
// element of every one compared. Every product of a rank is exact in fp32; the reference rounds and
// adds in the order that the operators promise, so results must match bit for bit.
#pragma once
#include <gtest/gtest.h>

#include <chrono>
#include <cstdint>
#include <functional>
#include <ostream>
#include <random>

#include <mkernel/operators.h>

#include "tests/harness/gather_case.h"

namespace mkernel::harness {

struct ReduceCase {
  ClusterOptions cluster;
  bool gathers = false;  // GEMM+AllReduce
  GemmReduceShape shape;
  GemmReduceTuning tuning;
  /// Every other element is scaled by 2^-7 or so: sums in fp32 are then not exact, and another
  /// order of ranks or nodes would give other bits.
  bool rounds = false;
  int pad_a = 0, pad_b = 0, pad_c = 0, pad_residual = 0;
  int iterations = 2;  // launches without a host's wait between them
  GatherCase::Order order = GatherCase::Order::kByRank;
  std::chrono::microseconds pause{0};  // between one rank's launches and the next one's
  uint32_t seed = 1;
  std::function<void()> before_launches, after_launches;  // may be empty
};

std::ostream& operator<<(std::ostream& out, const ReduceCase& c);

/// A random cluster, shape, network and work space, from one rank to 16.
ReduceCase random_reduce_case(std::mt19937& random, bool gathers, const CaseLimits& limits = {});

/// Runs the case; adds a gtest failure that names the first wrong element.
/// Returns the contexts' status at the end.
Status run_case(const ReduceCase& c);

}  // namespace mkernel::harness
