// Device memory that processes of one host share: CUDA's virtual memory, named by POSIX
// descriptors.
#pragma once
#include <bit>
#include <cstdint>

#include <mkernel/status.h>

namespace mkernel {

/// A mapped allocation, of this process or of another one. The memory itself goes with the last
/// mapping of any process.
class CudaShared {
 public:
  /// `bytes` are rounded up to the device's granularity, the same way on both sides.
  /// Errors: unavailable if the device is full or the driver cannot share; internal.
  static Result<CudaShared> create(int device, uint64_t bytes);
  /// Maps another process's allocation for `device`, which may not be the one that has the memory.
  static Result<CudaShared> import(int device, int descriptor, uint64_t bytes);

  CudaShared(CudaShared&& other) noexcept;
  CudaShared& operator=(CudaShared&&) = delete;
  ~CudaShared();

  void* data() const { return std::bit_cast<void*>(address_); }
  /// A new descriptor for another process.
  Result<int> export_descriptor() const;

 private:
  CudaShared(unsigned long long handle, uint64_t bytes) : handle_(handle), bytes_(bytes) {}
  Status map(int device);

  unsigned long long handle_;  // CUmemGenericAllocationHandle; 0: moved from
  uint64_t bytes_;
  unsigned long long address_ = 0;  // CUdeviceptr; 0: nothing is mapped
};

}  // namespace mkernel
