// A matrix with memory of its own on a rank's device.
#pragma once
#include <algorithm>
#include <utility>

#include <mkernel/context.h>
#include <mkernel/tensor.h>

namespace mkernel::app {

class MatrixBuffer {
 public:
  static Result<MatrixBuffer> create(Context& context, int64_t rows, int64_t cols,
                                     uint64_t element_bytes = kElementBytes) {
    const uint64_t bytes =
        static_cast<uint64_t>(rows) * static_cast<uint64_t>(cols) * element_bytes;
    // A matrix without rows still wants an address.
    Result<Buffer> buffer = context.allocate(std::max(bytes, element_bytes));
    if (!buffer) return buffer.status();
    const Matrix view{buffer.value().data(), rows, cols, cols};
    return MatrixBuffer(std::move(buffer).value(), view);
  }

  const Matrix& view() const { return view_; }

 private:
  MatrixBuffer(Buffer buffer, Matrix view) : buffer_(std::move(buffer)), view_(view) {}

  Buffer buffer_;
  Matrix view_;
};

}  // namespace mkernel::app
