#include "memory/cuda_shared.h"

#include <cudaTypedefs.h>

#include <bit>
#include <utility>

#include "core/maths.h"
#include "memory/cuda_driver.h"

namespace mkernel {
namespace {

struct Driver {
  PFN_cuMemGetAllocationGranularity_v10020 granularity = nullptr;
  PFN_cuMemCreate_v10020 create = nullptr;
  PFN_cuMemRelease_v10020 release = nullptr;
  PFN_cuMemAddressReserve_v10020 reserve = nullptr;
  PFN_cuMemAddressFree_v10020 free = nullptr;
  PFN_cuMemMap_v10020 map = nullptr;
  PFN_cuMemUnmap_v10020 unmap = nullptr;
  PFN_cuMemSetAccess_v10020 set_access = nullptr;
  PFN_cuMemExportToShareableHandle_v10020 export_handle = nullptr;
  PFN_cuMemImportFromShareableHandle_v10020 import_handle = nullptr;
};

Result<Driver> find_driver() {
  constexpr unsigned kVersion = 10020;
  Driver d;
  MK_RETURN_IF_ERROR(
      find_driver_function("cuMemGetAllocationGranularity", kVersion, &d.granularity));
  MK_RETURN_IF_ERROR(find_driver_function("cuMemCreate", kVersion, &d.create));
  MK_RETURN_IF_ERROR(find_driver_function("cuMemRelease", kVersion, &d.release));
  MK_RETURN_IF_ERROR(find_driver_function("cuMemAddressReserve", kVersion, &d.reserve));
  MK_RETURN_IF_ERROR(find_driver_function("cuMemAddressFree", kVersion, &d.free));
  MK_RETURN_IF_ERROR(find_driver_function("cuMemMap", kVersion, &d.map));
  MK_RETURN_IF_ERROR(find_driver_function("cuMemUnmap", kVersion, &d.unmap));
  MK_RETURN_IF_ERROR(find_driver_function("cuMemSetAccess", kVersion, &d.set_access));
  MK_RETURN_IF_ERROR(
      find_driver_function("cuMemExportToShareableHandle", kVersion, &d.export_handle));
  MK_RETURN_IF_ERROR(
      find_driver_function("cuMemImportFromShareableHandle", kVersion, &d.import_handle));
  return d;
}

const Result<Driver>& driver() {
  static const Result<Driver> found = find_driver();
  return found;
}

// CU_DEVICE_ATTRIBUTE_GPU_DIRECT_RDMA_WITH_CUDA_VMM_SUPPORTED, which the run time passes on without
// a name of its own.
constexpr auto kForNics =
    static_cast<cudaDeviceAttr>(CU_DEVICE_ATTRIBUTE_GPU_DIRECT_RDMA_WITH_CUDA_VMM_SUPPORTED);

CUmemAllocationProp properties_of(int device) {
  CUmemAllocationProp properties{};
  properties.type = CU_MEM_ALLOCATION_TYPE_PINNED;
  properties.requestedHandleTypes = CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR;
  properties.location = {CU_MEM_LOCATION_TYPE_DEVICE, device};
  // Without this a NIC cannot register the memory. Where it is not known, nothing is lost.
  int for_nics = 0;
  (void)cudaDeviceGetAttribute(&for_nics, kForNics, device);
  properties.allocFlags.gpuDirectRDMACapable = for_nics != 0 ? 1 : 0;
  return properties;
}

Result<uint64_t> round_to_granularity(int device, uint64_t bytes) {
  const CUmemAllocationProp properties = properties_of(device);
  size_t granularity = 0;
  MK_RETURN_IF_ERROR(driver_status(
      "cuMemGetAllocationGranularity",
      driver()->granularity(&granularity, &properties, CU_MEM_ALLOC_GRANULARITY_RECOMMENDED)));
  return round_up<uint64_t>(bytes == 0 ? 1 : bytes, granularity);
}

}  // namespace

CudaShared::CudaShared(CudaShared&& other) noexcept
    : handle_(std::exchange(other.handle_, 0)),
      bytes_(other.bytes_),
      address_(std::exchange(other.address_, 0)) {}

CudaShared::~CudaShared() {
  // A failure here means that the device is lost already.
  if (address_ != 0) {
    (void)driver()->unmap(address_, bytes_);
    (void)driver()->free(address_, bytes_);
  }
  if (handle_ != 0) (void)driver()->release(handle_);
}

Result<CudaShared> CudaShared::create(int device, uint64_t bytes) {
  if (!driver()) return driver().status();
  const Result<uint64_t> rounded = round_to_granularity(device, bytes);
  if (!rounded) return rounded.status();
  const CUmemAllocationProp properties = properties_of(device);
  CUmemGenericAllocationHandle handle = 0;
  MK_RETURN_IF_ERROR(
      driver_status("cuMemCreate", driver()->create(&handle, *rounded, &properties, 0)));
  CudaShared shared(handle, *rounded);
  MK_RETURN_IF_ERROR(shared.map(device));
  return shared;
}

Result<CudaShared> CudaShared::import(int device, int descriptor, uint64_t bytes) {
  if (!driver()) return driver().status();
  const Result<uint64_t> rounded = round_to_granularity(device, bytes);
  if (!rounded) return rounded.status();
  CUmemGenericAllocationHandle handle = 0;
  void* const name = std::bit_cast<void*>(intptr_t{descriptor});
  MK_RETURN_IF_ERROR(driver_status(
      "cuMemImportFromShareableHandle",
      driver()->import_handle(&handle, name, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR)));
  CudaShared shared(handle, *rounded);
  MK_RETURN_IF_ERROR(shared.map(device));
  return shared;
}

Status CudaShared::map(int device) {
  CUdeviceptr address = 0;
  MK_RETURN_IF_ERROR(
      driver_status("cuMemAddressReserve", driver()->reserve(&address, bytes_, 0, 0, 0)));
  if (const CUresult mapped = driver()->map(address, bytes_, 0, handle_, 0);
      mapped != CUDA_SUCCESS) {
    (void)driver()->free(address, bytes_);
    return driver_status("cuMemMap", mapped);
  }
  address_ = address;
  CUmemAccessDesc access{};
  access.location = {CU_MEM_LOCATION_TYPE_DEVICE, device};
  access.flags = CU_MEM_ACCESS_FLAGS_PROT_READWRITE;
  return driver_status("cuMemSetAccess", driver()->set_access(address_, bytes_, &access, 1));
}

Result<int> CudaShared::export_descriptor() const {
  int descriptor = -1;
  MK_RETURN_IF_ERROR(driver_status(
      "cuMemExportToShareableHandle",
      driver()->export_handle(&descriptor, handle_, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR, 0)));
  return descriptor;
}

}  // namespace mkernel
