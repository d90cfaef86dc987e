// Small integer arithmetic that both machines need.
#pragma once
#include <cstdint>

#include "core/target.h"

namespace mkernel {

template <class T>
MK_HD constexpr T ceil_div(T a, T b) {
  return (a + b - 1) / b;
}

template <class T>
MK_HD constexpr T round_up(T a, T b) {
  return ceil_div(a, b) * b;
}

template <class T>
MK_HD constexpr T smaller(T a, T b) {
  return a < b ? a : b;
}

}  // namespace mkernel
