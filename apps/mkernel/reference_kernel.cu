// Kernels behind reference_kernel.h. The reference is a plain fp64 product of one element per
// thread and step, with shared-memory tiles: simple enough to trust, fast enough for 16384 rows.
#include <cuda_runtime.h>

#include <algorithm>
#include <string>

#include "core/float16.h"
#include "core/sync.h"
#include "reference_kernel.h"

namespace mkernel::app {
namespace {

constexpr int kThreads = 256;
constexpr int kTile = 64;             // rows and columns of c per block
constexpr int kDepth = 16;            // of k, per step
constexpr int kSide = 16;             // threads are kSide x kSide ...
constexpr int kEach = kTile / kSide;  // ... and each has kEach x kEach elements
constexpr int64_t kMaxBlocks = 4096;  // of kernels that loop over elements
constexpr int64_t kMaxGrid = 2147483647;

Status launched(const char* kernel) {
  const cudaError_t error = cudaGetLastError();
  if (error == cudaSuccess) return Status::ok();
  return {Code::kInternal, std::string(kernel) + " was not launched: " + cudaGetErrorString(error)};
}

int64_t num_tiles(int64_t size) { return (size + kTile - 1) / kTile; }

int64_t num_loop_blocks(const Matrix& matrix) {
  return std::min((matrix.rows * matrix.cols + kThreads - 1) / kThreads, kMaxBlocks);
}

__device__ uint16_t load(const Matrix& matrix, int64_t row, int64_t col) {
  return static_cast<const uint16_t*>(matrix.data)[row * matrix.ld + col];
}

__device__ void store(const Matrix& matrix, int64_t index, uint16_t bits) {
  static_cast<uint16_t*>(matrix.data)[index / matrix.cols * matrix.ld + index % matrix.cols] = bits;
}

__device__ int64_t first_index() { return int64_t{blockIdx.x} * kThreads + threadIdx.x; }
__device__ int64_t index_step() { return int64_t{gridDim.x} * kThreads; }

__global__ void fill_normal_kernel(Matrix out, DType dtype, uint64_t value_stream) {
  for (int64_t i = first_index(); i < out.rows * out.cols; i += index_step())
    store(out, i, from_float(normal(value_stream, static_cast<uint64_t>(i)), dtype));
}

__global__ void fill_bits_kernel(Matrix out, uint16_t bits) {
  for (int64_t i = first_index(); i < out.rows * out.cols; i += index_step()) store(out, i, bits);
}

/// Leaves the worst of all threads' findings in *result.
__device__ void reduce_block(const Worst& mine, Worst* result) {
  __shared__ Worst worst[kThreads];
  worst[threadIdx.x] = mine;
  for (int half = kThreads / 2; half > 0; half /= 2) {
    __syncthreads();
    if (threadIdx.x < half) worst[threadIdx.x].merge(worst[threadIdx.x + half]);
  }
  if (threadIdx.x == 0) *result = worst[0];
}

struct Tiles {
  double a[kDepth][kTile + 1];  // one more: threads of a warp write down a column
  double b[kDepth][kTile + 1];
};

/// Loads rows [row, row + kTile) of a and columns [col, col + kTile) of b, at depths [depth, end).
__device__ void load_tiles(const Product& p, int64_t row, int64_t col, int64_t depth, int64_t end,
                           Tiles& tiles) {
  const bool b_is_kn = p.b_layout == BLayout::kKN;
  for (int i = threadIdx.x; i < kTile * kDepth; i += kThreads) {
    // Neighbouring threads follow the rows of each matrix as it lies in memory.
    const int across = i % kDepth, down = i / kDepth;
    const int64_t r = row + down;
    const bool in_a = r < p.c.rows && depth + across < end;
    tiles.a[across][down] = in_a ? to_float(load(p.a, r, depth + across), p.dtype) : 0.0;

    const int kk = b_is_kn ? i / kTile : across;
    const int c = b_is_kn ? i % kTile : down;
    const bool in_b = col + c < p.c.cols && depth + kk < end;
    const int64_t b_row = b_is_kn ? depth + kk : col + c;
    const int64_t b_col = b_is_kn ? col + c : depth + kk;
    tiles.b[kk][c] = in_b ? to_float(load(p.b, b_row, b_col), p.dtype) : 0.0;
  }
}

struct Sums {
  double part[kEach][kEach] = {};
  double sum[kEach][kEach] = {};
  double abs_sum[kEach][kEach] = {};
  double parts_abs[kEach][kEach] = {};

  __device__ void end_part() {
#pragma unroll
    for (int i = 0; i < kEach; ++i)
#pragma unroll
      for (int j = 0; j < kEach; ++j) {
        sum[i][j] += part[i][j];
        parts_abs[i][j] += fabs(part[i][j]);
        part[i][j] = 0;
      }
  }
};

__device__ void multiply_tiles(const Tiles& tiles, int x, int y, Sums& s) {
  for (int kk = 0; kk < kDepth; ++kk) {
    double a[kEach], b[kEach];
#pragma unroll
    for (int i = 0; i < kEach; ++i) {
      a[i] = tiles.a[kk][y + i * kSide];
      b[i] = tiles.b[kk][x + i * kSide];
    }
#pragma unroll
    for (int i = 0; i < kEach; ++i) {
#pragma unroll
      for (int j = 0; j < kEach; ++j) {
        s.part[i][j] += a[i] * b[j];
        s.abs_sum[i][j] += fabs(a[i]) * fabs(b[j]);
      }
    }
  }
}

__global__ void __launch_bounds__(kThreads)
    verify_kernel(Product p, ErrorBound bound, int64_t tile_cols, Worst* partial) {
  __shared__ Tiles tiles;
  const int64_t row = blockIdx.x / tile_cols * kTile;
  const int64_t col = blockIdx.x % tile_cols * kTile;
  const int x = threadIdx.x % kSide, y = threadIdx.x / kSide;
  Sums s;
  const int64_t part_depth = p.a.cols / p.finish.parts;
  for (int64_t begin = 0; begin < p.a.cols; begin += part_depth) {
    for (int64_t depth = begin; depth < begin + part_depth; depth += kDepth) {
      load_tiles(p, row, col, depth, begin + part_depth, tiles);
      __syncthreads();
      multiply_tiles(tiles, x, y, s);
      __syncthreads();
    }
    s.end_part();
  }
  Worst worst;
#pragma unroll
  for (int i = 0; i < kEach; ++i) {
#pragma unroll
    for (int j = 0; j < kEach; ++j) {
      const int64_t r = row + y + i * kSide, c = col + x + j * kSide;
      if (r >= p.c.rows || c >= p.c.cols) continue;
      worst.merge(judge(p, bound, r, c, {s.sum[i][j], s.abs_sum[i][j], s.parts_abs[i][j]}));
    }
  }
  reduce_block(worst, partial + blockIdx.x);
}

__global__ void compare_kernel(Matrix got, Matrix want, DType dtype, Worst* partial) {
  Worst worst;
  for (int64_t i = first_index(); i < want.rows * want.cols; i += index_step()) {
    const int64_t row = i / want.cols, col = i % want.cols;
    const uint16_t g = load(got, row, col), w = load(want, row, col);
    worst.merge({g == w ? 0 : HUGE_VAL, row, col, to_float(g, dtype), to_float(w, dtype)});
  }
  reduce_block(worst, partial + blockIdx.x);
}

__global__ void gate_kernel(uint32_t* word, uint32_t target) {
  constexpr uint64_t kLimitNs = 2'000'000'000;
  const auto now = [] {
    uint64_t ns;
    asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(ns));
    return ns;
  };
  const uint64_t start = now();
  while (!reached(load_acquire<Scope::kSys>(word), target) && now() - start < kLimitNs) {
  }
}

}  // namespace

Status launch_fill_normal(const Matrix& out, DType dtype, const ArrayKey& key, void* stream) {
  if (out.rows * out.cols == 0) return Status::ok();
  fill_normal_kernel<<<static_cast<unsigned>(num_loop_blocks(out)), kThreads, 0,
                       static_cast<cudaStream_t>(stream)>>>(out, dtype, stream_of(key));
  return launched("fill_normal_kernel");
}

Status launch_fill_bits(const Matrix& out, uint16_t bits, void* stream) {
  if (out.rows * out.cols == 0) return Status::ok();
  fill_bits_kernel<<<static_cast<unsigned>(num_loop_blocks(out)), kThreads, 0,
                     static_cast<cudaStream_t>(stream)>>>(out, bits);
  return launched("fill_bits_kernel");
}

int64_t num_verify_partials(const Product& product) {
  return num_tiles(product.c.rows) * num_tiles(product.c.cols);
}

Status launch_verify(const Product& product, Worst* partial, void* stream) {
  const int64_t blocks = num_verify_partials(product);
  if (blocks > kMaxGrid) return {Code::kUnsupported, "the product is too large to verify"};
  verify_kernel<<<static_cast<unsigned>(blocks), kThreads, 0, static_cast<cudaStream_t>(stream)>>>(
      product, ErrorBound::of(product.dtype, product.a.cols), num_tiles(product.c.cols), partial);
  return launched("verify_kernel");
}

int64_t num_compare_partials(const Matrix& matrix) { return num_loop_blocks(matrix); }

Status launch_compare(const Matrix& got, const Matrix& want, DType dtype, Worst* partial,
                      void* stream) {
  compare_kernel<<<static_cast<unsigned>(num_loop_blocks(want)), kThreads, 0,
                   static_cast<cudaStream_t>(stream)>>>(got, want, dtype, partial);
  return launched("compare_kernel");
}

Status launch_gate(uint32_t* word, uint32_t target, void* stream) {
  gate_kernel<<<1, 1, 0, static_cast<cudaStream_t>(stream)>>>(word, target);
  return launched("gate_kernel");
}

}  // namespace mkernel::app
