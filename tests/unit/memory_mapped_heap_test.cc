#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstring>

#include "core/sync.h"
#include "memory/mapped_heap.h"
#include "transport/test_ranks.h"

namespace mkernel {
namespace {

using test::value_of;

constexpr uint64_t kLimit = 1 << 20;

struct SharedHeap {
  std::unique_ptr<DeviceMemory> memory = create_host_memory();
  std::unique_ptr<SymmetricHeap> heap =
      value_of(SymmetricHeap::create(*memory, 0, kLimit, HeapReach::kHost));
  HeapRegionPtr region = value_of(heap->allocate(1000));
};

/// The heap as another process would map it; descriptors are closed at once, as they may be.
std::unique_ptr<MappedHeap> map(const SharedHeap& from, DeviceMemory& memory) {
  const int flags = value_of(from.memory->export_shared(from.heap->flag_region()));
  auto mapped = value_of(MappedHeap::create(memory, flags));
  const int data = value_of(from.memory->export_shared(from.region->data));
  EXPECT_TRUE(mapped->map(from.region->address, from.region->bytes, data));
  close(flags);
  close(data);
  return mapped;
}

TEST(MappedHeap, IsTheSameMemoryInAnotherProcess) {
  const SharedHeap own;
  std::memset(own.region->data, 1, 1000);
  const pid_t child = fork();
  ASSERT_GE(child, 0);
  if (child == 0) {
    const auto memory = create_host_memory();
    const auto mapped = map(own, *memory);
    char* const data = mapped->resolve(own.region->address + 999, 1);
    if (data == nullptr || *data != 1) _exit(1);
    *data = 2;
    store_release<Scope::kSys>(mapped->flag(77), 5u);
    _exit(0);
  }
  int status = 0;
  ASSERT_EQ(waitpid(child, &status, 0), child);
  EXPECT_EQ(status, 0);
  EXPECT_EQ(load_acquire<Scope::kSys>(own.heap->flag(77)), 5u);
  EXPECT_EQ(own.region->data[999], 2);
}

TEST(MappedHeap, HasOneAddressInAProcess) {
  // Tools that order accesses by address, as ThreadSanitizer does, depend on it.
  const SharedHeap own;
  const auto memory = create_host_memory();
  auto first = map(own, *memory);
  const auto second = map(own, *memory);
  const uint64_t address = own.region->address;
  EXPECT_EQ(first->resolve(address, 1), own.region->data);
  EXPECT_EQ(second->flag(77), own.heap->flag(77));
  first.reset();
  EXPECT_EQ(second->resolve(address, 1), own.region->data);
  std::memset(own.region->data, 4, 1000);
  EXPECT_EQ(*second->resolve(address + 999, 1), 4);
}

TEST(MappedHeap, NamesOnlyWhatIsMapped) {
  const SharedHeap own;
  const auto memory = create_host_memory();
  const auto mapped = map(own, *memory);
  const uint64_t address = own.region->address;
  EXPECT_NE(mapped->resolve(address, 1000), nullptr);
  EXPECT_EQ(mapped->resolve(address, 1001), nullptr);
  EXPECT_EQ(mapped->resolve(heap_address(2, 0), 1), nullptr);
  mapped->unmap(address);
  EXPECT_EQ(mapped->resolve(address, 1), nullptr);
  mapped->unmap(address);  // nothing to do
}

TEST(MappedHeap, StaysWhenItsOwnerIsGone) {
  const auto memory = create_host_memory();
  std::unique_ptr<MappedHeap> mapped;
  uint64_t address = 0;
  {
    const SharedHeap own;
    std::memset(own.region->data, 3, 1000);
    address = own.region->address;
    mapped = map(own, *memory);
  }
  EXPECT_EQ(*mapped->resolve(address, 1000), 3);
}

TEST(HostMemory, ExportsOnlyWhatIsShared) {
  const auto memory = create_host_memory();
  void* const p = value_of(memory->allocate(64));
  EXPECT_EQ(memory->export_shared(p).status().code(), Code::kInternal);
  EXPECT_FALSE(memory->import_shared(-1, 64));
}

TEST(HostMemory, SharedPagesOfFewerBytesThanSaidAreRefused) {
  const auto memory = create_host_memory();
  const int descriptor = value_of(memory->export_shared(value_of(memory->allocate_shared(1000))));
  const Result<void*> whole = memory->import_shared(descriptor, 1001);
  close(descriptor);
  EXPECT_EQ(whole.status().code(), Code::kInvalidArgument);
}

}  // namespace
}  // namespace mkernel
