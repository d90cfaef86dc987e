// Which compiler reads this: lets one header serve the host machine (g++) and GPUs (nvcc).
#pragma once

#if defined(__CUDACC__)
#define MK_HD __host__ __device__ __forceinline__
#else
#define MK_HD inline
#endif
