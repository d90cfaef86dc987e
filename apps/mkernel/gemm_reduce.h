// The table entries of GEMM+ReduceScatter and GEMM+AllReduce.
#pragma once
#include "operators.h"

namespace mkernel::app {

template <bool kGathers>
std::unique_ptr<RankCase> make_gemm_reduce(Rank& rank, const CaseArguments& arguments);
template <bool kGathers>
double gemm_reduce_set_bytes(const CaseArguments& arguments, const ClusterOptions& cluster);
template <bool kGathers>
double gemm_reduce_fixed_bytes(const CaseArguments& arguments, const ClusterOptions& cluster);
double gemm_reduce_baseline_bytes(const CaseArguments& arguments, const ClusterOptions& cluster);
Result<Baselines> gemm_reduce_baselines(Cluster& cluster,
                                        std::span<const std::unique_ptr<RankCase>> cases,
                                        const std::string& wanted);
double gemm_reduce_flops(const CaseArguments& arguments);
template <bool kGathers>
double gemm_reduce_network_floor_us(const CaseArguments& arguments, const ClusterOptions& cluster);

template <bool kGathers>
inline constexpr Operator kGemmReduce{kGathers ? "gemm-ar" : "gemm-rs",
                                      kGathers
                                          ? "C = sum over ranks of A * B"
                                          : "C = this rank's rows of the sum over ranks of A * B",
                                      make_gemm_reduce<kGathers>,
                                      gemm_reduce_set_bytes<kGathers>,
                                      gemm_reduce_fixed_bytes<kGathers>,
                                      gemm_reduce_baseline_bytes,
                                      gemm_reduce_flops,
                                      gemm_reduce_baselines,
                                      gemm_reduce_network_floor_us<kGathers>};
inline constexpr const Operator& kGemmReduceScatter = kGemmReduce<false>;
inline constexpr const Operator& kGemmAllReduce = kGemmReduce<true>;

}  // namespace mkernel::app
