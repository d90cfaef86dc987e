// NCCL through dlopen. Its C interface is declared here by hand: eight functions whose ABI has not
// changed since NCCL 2.0.
#if defined(MK_WITH_CUDA)
#include "nccl.h"

#include <algorithm>
#include <cstdlib>

#include "cuda_check.h"
#include "symbol.h"

namespace mkernel::app {
namespace {

using NcclComm = void*;
constexpr int kNcclUint8 = 1;
constexpr int kNcclFloat16 = 6;
constexpr int kNcclBfloat16 = 9;
constexpr int kNcclSum = 0;

struct NcclApi {
  int (*init_all)(NcclComm* comms, int num_devices, const int* devices) = nullptr;
  int (*destroy)(NcclComm) = nullptr;
  int (*group_start)() = nullptr;
  int (*group_end)() = nullptr;
  int (*all_gather)(const void* from, void* to, size_t count, int type, NcclComm,
                    cudaStream_t) = nullptr;
  int (*reduce_scatter)(const void* from, void* to, size_t count_of_each, int type, int op,
                        NcclComm, cudaStream_t) = nullptr;
  int (*all_reduce)(const void* from, void* to, size_t count, int type, int op, NcclComm,
                    cudaStream_t) = nullptr;
  const char* (*error_string)(int) = nullptr;
};

/// Open for as long as the process runs: NCCL has threads of its own.
Result<NcclApi> open_nccl() {
  // Without NVLink multicast (NVLS), which not every machine that has it lets a process use: NCCL
  // then fails, where it could have done without. Whoever wants it measured sets the variable.
  (void)setenv("NCCL_NVLS_ENABLE", "0", /*overwrite=*/0);
  constexpr const char* kName = "libnccl.so.2";
  void* library = dlopen(kName, RTLD_NOW | RTLD_LOCAL);
  if (library == nullptr)
    return Status(Code::kUnavailable, std::string("nccl: no ") + kName + " on this machine");
  NcclApi api;
  if (find_symbol(library, "ncclCommInitAll", api.init_all) &&
      find_symbol(library, "ncclCommDestroy", api.destroy) &&
      find_symbol(library, "ncclGroupStart", api.group_start) &&
      find_symbol(library, "ncclGroupEnd", api.group_end) &&
      find_symbol(library, "ncclAllGather", api.all_gather) &&
      find_symbol(library, "ncclReduceScatter", api.reduce_scatter) &&
      find_symbol(library, "ncclAllReduce", api.all_reduce) &&
      find_symbol(library, "ncclGetErrorString", api.error_string))
    return api;
  return Status(Code::kUnavailable, std::string("nccl: ") + kName + " lacks a function");
}

class NcclInProcess final : public Nccl {
 public:
  NcclInProcess(NcclApi api, std::vector<NcclComm> comms) : api_(api), comms_(std::move(comms)) {}
  ~NcclInProcess() override {
    for (NcclComm comm : comms_) (void)api_.destroy(comm);  // nothing to do about a failure here
  }

  Status all_gather(const std::vector<GatherPart>& parts, uint64_t bytes) override {
    return on_all_ranks([&](size_t r) {
      return check(api_.all_gather(parts[r].from, parts[r].to, bytes, kNcclUint8, comms_[r],
                                   static_cast<cudaStream_t>(parts[r].stream)),
                   "ncclAllGather");
    });
  }

  Status reduce(const std::vector<ReducePart>& parts, uint64_t elements, DType dtype,
                bool scatter) override {
    const int type = dtype == DType::kBf16 ? kNcclBfloat16 : kNcclFloat16;
    return on_all_ranks([&](size_t r) {
      const ReducePart& part = parts[r];
      auto* stream = static_cast<cudaStream_t>(part.stream);
      if (scatter)
        return check(api_.reduce_scatter(part.from, part.to, elements / comms_.size(), type,
                                         kNcclSum, comms_[r], stream),
                     "ncclReduceScatter");
      return check(api_.all_reduce(part.from, part.to, elements, type, kNcclSum, comms_[r], stream),
                   "ncclAllReduce");
    });
  }

 private:
  Status check(int status, const char* call) const {
    if (status == 0) return Status::ok();
    return {Code::kInternal, std::string(call) + " failed: " + api_.error_string(status)};
  }

  /// A group, since one thread calls for all ranks: the calls alone would wait for each other.
  template <class Call>
  Status on_all_ranks(Call&& call) {
    MK_RETURN_IF_ERROR(check(api_.group_start(), "ncclGroupStart"));
    Status called;
    for (size_t r = 0; r < comms_.size() && called; ++r) called = call(r);
    const Status ended = check(api_.group_end(), "ncclGroupEnd");  // also after a failure
    return called ? ended : called;
  }

  NcclApi api_;
  std::vector<NcclComm> comms_;
};

Result<std::vector<int>> distinct_devices(const std::vector<const void*>& memory) {
  std::vector<int> devices;
  for (const void* pointer : memory) {
    const Result<int> device = device_of(pointer);
    if (!device) return device.status();
    if (std::find(devices.begin(), devices.end(), device.value()) != devices.end())
      return Status(Code::kUnavailable, "nccl: ranks share GPU " + std::to_string(device.value()));
    devices.push_back(device.value());
  }
  return devices;
}

}  // namespace

Result<std::unique_ptr<Nccl>> create_nccl(const std::vector<const void*>& memory) {
  const Result<std::vector<int>> devices = distinct_devices(memory);
  if (!devices) return devices.status();
  const Result<NcclApi> api = open_nccl();
  if (!api) return api.status();
  std::vector<NcclComm> comms(memory.size());
  const int status =
      api.value().init_all(comms.data(), static_cast<int>(comms.size()), devices.value().data());
  if (status != 0)
    return Status(Code::kUnavailable,
                  std::string("nccl: ncclCommInitAll failed: ") + api.value().error_string(status));
  return std::unique_ptr<Nccl>(std::make_unique<NcclInProcess>(api.value(), std::move(comms)));
}

}  // namespace mkernel::app
#endif
