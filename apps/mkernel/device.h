// What the application itself does on a rank's device: fill inputs, verify outputs, take times.
// The host and the GPU each have one implementation; nothing here is part of the library.
#pragma once
#include <limits>
#include <memory>

#include <mkernel/context.h>
#include <mkernel/status.h>
#include <mkernel/tensor.h>

#include "bound.h"
#include "core/float16.h"
#include "generator.h"
#include "host_verify.h"

namespace mkernel::app {

/// Holds timed launches back until all ranks have enqueued theirs, so that ranks start together.
/// Threads: wait() from any, open() while no thread is in wait().
class StartGate {
 public:
  virtual ~StartGate() = default;
  /// Work enqueued on the stream from here on waits for the next open().
  virtual Status wait(StreamHandle stream) = 0;
  virtual void open() = 0;
};

/// One rank's device. Threads: one at a time.
class Device {
 public:
  virtual ~Device() = default;

  // These enqueue on the stream. On the host they are done on return.
  virtual Status fill_normal(const Matrix& out, DType dtype, const ArrayKey& key,
                             StreamHandle stream) = 0;
  virtual Status fill_nan(const Matrix& out, DType dtype, StreamHandle stream) = 0;

  // These are done on return, after what the stream holds.
  virtual Result<Worst> verify(const Product& product, StreamHandle stream) = 0;
  virtual Result<Worst> compare(const Matrix& got, const Matrix& want, DType dtype,
                                StreamHandle stream) = 0;

  /// Allocates and loads what start() needs, while no launch is in flight: both may wait for one.
  virtual Status prepare_timing(StreamHandle stream) = 0;
  /// What runs between start() and stop() is timed, from cold caches and behind the gate, if one is
  /// given; elapsed_us() is valid once the stream is synchronized.
  virtual Status start(StreamHandle stream, StartGate* gate) = 0;
  virtual Status stop(StreamHandle stream) = 0;
  virtual Result<double> elapsed_us() = 0;
};

/// What outputs hold before a run, so that an element nobody wrote is found.
inline uint16_t quiet_nan(DType dtype) {
  return from_float(std::numeric_limits<float>::quiet_NaN(), dtype);
}

/// The device and the gate of a context's kind; unsupported for GPUs in a build without CUDA.
Result<std::unique_ptr<Device>> create_device(Context& context);
Result<std::unique_ptr<StartGate>> create_gate(DeviceKind kind);

}  // namespace mkernel::app
