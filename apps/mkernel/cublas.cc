// cuBLAS through dlopen. Its C interface is declared here by hand: four functions whose ABI has
// not changed since they came, and no header that a build would have to find.
#if defined(MK_WITH_CUDA)
#include "cublas.h"

#include <library_types.h>

#include "cuda_check.h"
#include "symbol.h"

namespace mkernel::app {
namespace {

using CublasHandle = void*;
constexpr int kOpN = 0;
constexpr int kOpT = 1;
constexpr int kCompute32F = 68;
constexpr int kDefaultAlgorithm = -1;

struct CublasApi {
  int (*create)(CublasHandle*) = nullptr;
  int (*destroy)(CublasHandle) = nullptr;
  int (*set_stream)(CublasHandle, cudaStream_t) = nullptr;
  int (*gemm)(CublasHandle, int op_a, int op_b, int m, int n, int k, const void* alpha,
              const void* a, cudaDataType type_a, int lda, const void* b, cudaDataType type_b,
              int ldb, const void* beta, void* c, cudaDataType type_c, int ldc, int compute,
              int algorithm) = nullptr;
};

/// Open for as long as the process runs: cuBLAS does not support being unloaded.
Result<CublasApi> open_cublas() {
  for (const char* name : {"libcublas.so.13", "libcublas.so.12", "libcublas.so"}) {
    void* library = dlopen(name, RTLD_NOW | RTLD_LOCAL);
    if (library == nullptr) continue;
    CublasApi api;
    if (find_symbol(library, "cublasCreate_v2", api.create) &&
        find_symbol(library, "cublasDestroy_v2", api.destroy) &&
        find_symbol(library, "cublasSetStream_v2", api.set_stream) &&
        find_symbol(library, "cublasGemmEx", api.gemm))
      return api;
  }
  return Status(Code::kUnavailable, "cublas: no libcublas.so.13, .so.12 or .so on this machine");
}

Status check_cublas(int status, const char* call) {
  if (status == 0) return Status::ok();
  return {Code::kInternal, std::string(call) + " failed with status " + std::to_string(status)};
}

class CublasGemm final : public Gemm {
 public:
  CublasGemm(CublasApi api, CublasHandle handle) : api_(api), handle_(handle) {}
  ~CublasGemm() override { api_.destroy(handle_); }

  // Row-major c = a b is, to a column-major library, c^T = b^T a^T.
  Status run(const Product& p, StreamHandle stream) override {
    MK_RETURN_IF_ERROR(use_device_of(p.c.data));
    MK_RETURN_IF_ERROR(check_cublas(api_.set_stream(handle_, static_cast<cudaStream_t>(stream)),
                                    "cublasSetStream"));
    const cudaDataType type = p.dtype == DType::kBf16 ? CUDA_R_16BF : CUDA_R_16F;
    const float one = 1, zero = 0;
    const auto size = [](int64_t value) { return static_cast<int>(value); };
    return check_cublas(api_.gemm(handle_, p.b_layout == BLayout::kKN ? kOpN : kOpT, kOpN,
                                  size(p.c.cols), size(p.c.rows), size(p.a.cols), &one, p.b.data,
                                  type, size(p.b.ld), p.a.data, type, size(p.a.ld), &zero, p.c.data,
                                  type, size(p.c.ld), kCompute32F, kDefaultAlgorithm),
                        "cublasGemmEx");
  }

 private:
  CublasApi api_;
  CublasHandle handle_;
};

}  // namespace

Result<std::unique_ptr<Gemm>> create_cublas_gemm(const void* memory) {
  MK_RETURN_IF_ERROR(use_device_of(memory));
  Result<CublasApi> api = open_cublas();
  if (!api) return api.status();
  CublasHandle handle = nullptr;
  MK_RETURN_IF_ERROR(check_cublas(api.value().create(&handle), "cublasCreate"));
  return std::unique_ptr<Gemm>(std::make_unique<CublasGemm>(api.value(), handle));
}

}  // namespace mkernel::app
#endif
