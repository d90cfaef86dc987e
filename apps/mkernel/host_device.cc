// The host as a device: plain loops, and wall time that tells nothing about a GPU.
#include <chrono>

#include "cuda_device.h"
#include "device.h"

namespace mkernel::app {
namespace {

using Clock = std::chrono::steady_clock;

template <class Function>
void for_each_element(const Matrix& out, Function value_at) {
  auto* data = static_cast<uint16_t*>(out.data);
  for (int64_t i = 0; i < out.rows; ++i)
    for (int64_t j = 0; j < out.cols; ++j) data[i * out.ld + j] = value_at(i * out.cols + j);
}

class HostGate final : public StartGate {
 public:
  // Nothing to hold back: work on the host starts when it is enqueued.
  Status wait(StreamHandle) override { return Status::ok(); }
  void open() override {}
};

class HostDevice final : public Device {
 public:
  explicit HostDevice(Context& context) : context_(context) {}

  Status fill_normal(const Matrix& out, DType dtype, const ArrayKey& key, StreamHandle) override {
    const uint64_t stream = stream_of(key);
    for_each_element(out, [&](int64_t index) {
      return from_float(normal(stream, static_cast<uint64_t>(index)), dtype);
    });
    return Status::ok();
  }

  Status fill_nan(const Matrix& out, DType dtype, StreamHandle) override {
    for_each_element(out, [&](int64_t) { return quiet_nan(dtype); });
    return Status::ok();
  }

  Result<Worst> verify(const Product& product, StreamHandle stream) override {
    if (Status status = context_.synchronize(stream); !status) return status;
    return verify_product(product);
  }

  Result<Worst> compare(const Matrix& got, const Matrix& want, DType dtype,
                        StreamHandle stream) override {
    if (Status status = context_.synchronize(stream); !status) return status;
    return compare_bits(got, want, dtype);
  }

  Status prepare_timing(StreamHandle) override { return Status::ok(); }

  Status start(StreamHandle, StartGate*) override {
    start_ = Clock::now();
    return Status::ok();
  }

  Status stop(StreamHandle stream) override {
    Status status = context_.synchronize(stream);
    stop_ = Clock::now();
    return status;
  }

  Result<double> elapsed_us() override {
    return std::chrono::duration<double, std::micro>(stop_ - start_).count();
  }

 private:
  Context& context_;
  Clock::time_point start_;
  Clock::time_point stop_;
};

}  // namespace

Result<std::unique_ptr<Device>> create_device(Context& context) {
  if (context.device() == DeviceKind::kCuda) return create_cuda_device(context);
  return std::unique_ptr<Device>(std::make_unique<HostDevice>(context));
}

Result<std::unique_ptr<StartGate>> create_gate(DeviceKind kind) {
  if (kind == DeviceKind::kCuda) return create_cuda_gate();
  return std::unique_ptr<StartGate>(std::make_unique<HostGate>());
}

}  // namespace mkernel::app
