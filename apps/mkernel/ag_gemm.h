// The table entry of AllGather+GEMM.
#pragma once
#include "operators.h"

namespace mkernel::app {

std::unique_ptr<RankCase> make_ag_gemm(Rank& rank, const CaseArguments& arguments);
double ag_gemm_set_bytes(const CaseArguments& arguments, const ClusterOptions& cluster);
double ag_gemm_fixed_bytes(const CaseArguments& arguments, const ClusterOptions& cluster);
double ag_gemm_baseline_bytes(const CaseArguments& arguments, const ClusterOptions& cluster);
Result<Baselines> ag_gemm_baselines(Cluster& cluster,
                                    std::span<const std::unique_ptr<RankCase>> cases,
                                    const std::string& wanted);
double ag_gemm_flops(const CaseArguments& arguments);
double ag_gemm_network_floor_us(const CaseArguments& arguments, const ClusterOptions& cluster);

inline constexpr Operator kAllGatherGemm{"ag-gemm",
                                         "C = (rows of A from all ranks) * B of this rank",
                                         make_ag_gemm,
                                         ag_gemm_set_bytes,
                                         ag_gemm_fixed_bytes,
                                         ag_gemm_baseline_bytes,
                                         ag_gemm_flops,
                                         ag_gemm_baselines,
                                         ag_gemm_network_floor_us};

}  // namespace mkernel::app
