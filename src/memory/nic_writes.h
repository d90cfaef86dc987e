// What a platform promises about writes of a NIC into a GPU's memory.
#pragma once

namespace mkernel {

/// Whether kernels of the GPU that owns the memory see such writes in the order in which they came,
/// from the device's attribute GPU_DIRECT_RDMA_WRITES_ORDERING: 0 none, 100 the owner, 200 all
/// devices. What is not known counts as none.
constexpr bool orders_nic_writes(int attribute) { return attribute == 100 || attribute == 200; }

}  // namespace mkernel
