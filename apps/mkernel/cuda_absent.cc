// What the application has for GPUs, in builds without CUDA.
#if !defined(MK_WITH_CUDA)
#include "cublas.h"
#include "cuda_device.h"
#include "nccl.h"
#include "side_stream.h"

namespace mkernel::app {
namespace {
Status absent() { return {Code::kUnavailable, "cuda: not part of this build"}; }
}  // namespace

Result<std::unique_ptr<Device>> create_cuda_device(Context&) { return absent(); }
Result<std::unique_ptr<StartGate>> create_cuda_gate() { return absent(); }
Result<std::vector<Gpu>> find_gpus() { return absent(); }
Result<std::unique_ptr<Gemm>> create_cublas_gemm(const void*) { return absent(); }
Result<std::unique_ptr<Nccl>> create_nccl(const std::vector<const void*>&) { return absent(); }
Result<std::unique_ptr<SideStream>> create_side_stream(const void*) { return absent(); }

}  // namespace mkernel::app
#endif
