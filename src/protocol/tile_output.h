// What a machine does with the sums of one tile of a GEMM whose partial sums come from many ranks:
// hand them on as a partial sum, add what others handed on, finish the result.
#pragma once
#include <cstdint>

#include <mkernel/tensor.h>

#include "core/target.h"

namespace mkernel {

/// The same for all tiles of a launch. Strides and pitches in bytes.
///
/// A partial sum is a tile in work space, in the machine's own layout. The order of a sum: the
/// ranks of the node, first to last, then the nodes. Everything that may travel is rounded on its
/// way, once, also where it happens to stay: so a result depends neither on who owns its row nor on
/// which variant of an operator computed it.
struct TileSums {
  uint32_t gpus = 1, gpu = 0;    // ranks of the node, and which of them this one is
  uint32_t nodes = 1, node = 0;  // nodes, and which of them this one's is
  uint64_t partial_stride = 0;   // between partial sums of two ranks
  uint64_t sum_stride = 0;       // between sums of two nodes
  Partials partials = Partials::k16Bit;
  DType dtype = DType::kBf16;

  // The result: activation(alpha * sum + bias + residual).
  float alpha = 1;
  Activation activation = Activation::kNone;
  Output output = Output::kSame;
  uint64_t residual_pitch = 0;
  uint64_t c_pitch = 0;

  MK_HD uint32_t partial_element() const { return partials == Partials::kFp32 ? 4 : 2; }
  MK_HD uint32_t result_element() const { return output == Output::kFp32 ? 4 : 2; }
  /// Whether a copy of a result goes to the work space of a rank of the node. The network sends it
  /// from the own one.
  MK_HD bool copies_to(uint32_t other_gpu) const { return other_gpu != gpu || nodes > 1; }
  /// Rows of a result in work space; bulk copies want multiples of 16 bytes.
  MK_HD uint32_t result_pitch(uint32_t cols) const { return (cols * result_element() + 15) & ~15u; }
};

/// One tile's.
struct TileOutput {
  enum class Kind : uint32_t {
    kNone,     // dropped: the launch is broken
    kPartial,  // the own sums go to `to`
    kNodeSum,  // the sum over the node's ranks goes to `to`
    kResult,   // the sum over all ranks is finished and goes to C, and to the result slots
  };
  Kind kind = Kind::kNone;
  uint32_t rows = 0, cols = 0;
  bool copies = false;             // the result goes to other ranks too
  const char* partials = nullptr;  // of the node's first rank that is not this one
  const char* sums = nullptr;      // of the first node that is not this one
  char* to = nullptr;
  char* c = nullptr;               // first element in C
  const char* bias = nullptr;      // at the first column; null: none
  const char* residual = nullptr;  // at the first element; null: none
  uint64_t result_offset = 0;      // of the copies, in the work space of each rank of the node
};

/// The position of `other` among all but `self`.
MK_HD constexpr uint32_t among_others(uint32_t other, uint32_t self) {
  return other - (other > self ? 1 : 0);
}

}  // namespace mkernel
