// Kernels of the application: inputs are made and outputs verified on the GPU, so that large
// shapes never leave it. All enqueue on `stream` (a cudaStream_t) of the current device.
#pragma once
#include <cstdint>

#include <mkernel/status.h>

#include "bound.h"
#include "generator.h"
#include "host_verify.h"

namespace mkernel::app {

Status launch_fill_normal(const Matrix& out, DType dtype, const ArrayKey& key, void* stream);
Status launch_fill_bits(const Matrix& out, uint16_t bits, void* stream);

/// Each block of these two leaves its worst element in partial[0 .. num_partials).
/// Device memory; what they find is the merge of all.
int64_t num_verify_partials(const Product& product);
Status launch_verify(const Product& product, Worst* partial, void* stream);
int64_t num_compare_partials(const Matrix& matrix);
Status launch_compare(const Matrix& got, const Matrix& want, DType dtype, Worst* partial,
                      void* stream);

/// Later work on the stream waits until *word (host memory mapped to the GPU) reaches `target`, or
/// for two seconds: a launch that blocks its thread must not be held back for ever.
Status launch_gate(uint32_t* word, uint32_t target, void* stream);

}  // namespace mkernel::app
