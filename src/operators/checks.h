// Checks that all operators make of what a caller hands over, and the words they refuse it with.
#pragma once
#include <cstdint>
#include <string>

#include <mkernel/status.h>
#include <mkernel/tensor.h>

#include "operators/cluster.h"
#include "protocol/launch_work.h"

namespace mkernel::detail {

Status refuse(const std::string& what, int64_t value, const std::string& allowed);

/// 0 or 1 .. kMaxExtent for m, n and k.
Status check_extents(int64_t m, int64_t n, int64_t k);

/// Blocks that a tuning asks for; 0 lets the plan choose.
Status check_blocks(int blocks, const MachineShape& machine);

/// One operand against what the plan expects. Elements of `element_bytes`.
Status check_view(const char* name, const Matrix& view, int64_t rows, int64_t cols,
                  uint64_t element_bytes = kElementBytes);

inline uint64_t pitch_of(const Matrix& m, uint64_t element_bytes = kElementBytes) {
  return static_cast<uint64_t>(m.ld) * element_bytes;
}

/// Checks a, b and c of `layout`, and takes them.
/// Shapes:  a [rows_a, k], b [k, n] or [n, k] by layout, c [rows_c, n] of `c_element_bytes`.
struct ProductShape {
  int64_t rows_a, n, k, rows_c;
  uint64_t c_element_bytes = kElementBytes;
};
Status take_operands(LaunchWork& op, const ProductShape& shape, const Matrix& a, const Matrix& b,
                     const Matrix& c);

/// Gives a plan's launches their place in the cluster.
void place(LaunchWork& op, const Rank& rank);

/// Gives them the work space that `space` has for them.
void attach(LaunchWork& op, Rank& rank, const PlanSpace& space);

}  // namespace mkernel::detail
