#include "operators.h"

#include "ag_gemm.h"
#include "gemm_reduce.h"

namespace mkernel::app {

std::span<const Operator> operators() {
  static constexpr Operator kOperators[] = {kAllGatherGemm, kGemmReduceScatter, kGemmAllReduce};
  return kOperators;
}

const Operator* find_operator(const std::string& name) {
  for (const Operator& op : operators())
    if (name == op.name) return &op;
  return nullptr;
}

}  // namespace mkernel::app
