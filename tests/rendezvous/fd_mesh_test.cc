// File descriptors of memory really make it shared.
#include "rendezvous/fd_mesh.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/mman.h>

#include <string>
#include <vector>

#include "rendezvous/child_ranks.h"
#include "rendezvous/groups.h"
#include "rendezvous/unix_socket.h"

namespace mkernel::test {
namespace {

/// A page of memory behind a file descriptor.
class Page {
 public:
  explicit Page(int fd) : data_(mmap(nullptr, 4096, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0)) {
    EXPECT_NE(data_, MAP_FAILED);
  }
  ~Page() { munmap(data_, 4096); }
  Page(const Page&) = delete;
  Page& operator=(const Page&) = delete;
  volatile uint32_t& word(size_t i) { return static_cast<volatile uint32_t*>(data_)[i]; }

 private:
  void* data_;
};

OwnedFd new_memory() {
  OwnedFd fd(memfd_create("test", MFD_CLOEXEC));
  EXPECT_EQ(ftruncate(fd.get(), 4096), 0);
  return fd;
}

/// Every rank writes its number into everybody's memory, and finds everybody's in its own.
Status share(ProcessGroup& group, FdMesh& mesh) {
  const OwnedFd memory = new_memory();
  Result<std::vector<OwnedFd>> theirs = mesh.exchange(memory.get(), kLongUs);
  if (!theirs) return theirs.status();
  for (size_t i = 0; i < mesh.peers().size(); ++i) {
    const bool own = mesh.peers()[i] == group.rank();
    if (static_cast<bool>((*theirs)[i]) == own)
      return {Code::kInternal, "not the others' and only theirs"};
    if (own) continue;
    if ((fcntl((*theirs)[i].get(), F_GETFD) & FD_CLOEXEC) == 0)
      return {Code::kInternal, "inherited"};
    Page((*theirs)[i].get()).word(group.rank()) = group.rank() + 1;
  }
  MK_RETURN_IF_ERROR(group.barrier("written", kLongUs));
  Page mine(memory.get());
  for (const uint32_t peer : mesh.peers()) {
    if (peer != group.rank() && mine.word(peer) != peer + 1) {
      return {Code::kInternal, "rank " + std::to_string(peer) + " wrote elsewhere"};
    }
  }
  return group.barrier("read", kLongUs);
}

Status share_with_host(ProcessGroup& group) {
  Result<std::unique_ptr<FdMesh>> mesh =
      FdMesh::connect(group, group.ranks_of_this_host(), kLongUs);
  if (!mesh) return mesh.status();
  MK_RETURN_IF_ERROR(share(group, **mesh));
  return share(group, **mesh);
}

TEST(FdMesh, ProcessesShareMemory) {
  ChildRanks ranks(options_of(4), [](const RendezvousOptions& o, const ChildRanks::Say& say) {
    const auto group = value_of(ProcessGroup::join(o));
    say(share_with_host(*group).to_string());
  });
  for (size_t i = 0; i < 4; ++i) EXPECT_EQ(ranks.line_of(i), "ok");
}

TEST(FdMesh, OnlyRanksOfAHostShare) {
  std::vector<RendezvousOptions> options = options_of(5);
  options[1].host_id = options[4].host_id = "another";
  options[2].host_id = "alone";
  const Groups groups = join_all(options);
  in_threads(5, [&](size_t i) {
    const Status status = share_with_host(*groups[i]);
    EXPECT_TRUE(status) << status.message();
  });
}

TEST(FdMesh, TwoGroupsOfOneProcessAndOneNameDoNotMeet) {
  const Groups a = join_all(options_of(3, "same")), b = join_all(options_of(3, "same"));
  in_threads(6, [&](size_t i) {
    const Status status = share_with_host(i < 3 ? *a[i] : *b[i - 3]);
    EXPECT_TRUE(status) << status.message();
  });
}

TEST(FdMesh, SomeGiveAndSomeOnlyTake) {
  const Groups groups = join_all(options_of(3));
  in_threads(3, [&](size_t i) {
    const auto mesh = value_of(FdMesh::connect(*groups[i], {0, 1, 2}, kLongUs));
    const OwnedFd memory = new_memory();
    // Rank 0 gives to rank 2 alone.
    std::vector<int> mine(3, -1);
    if (i == 0) mine[2] = memory.get();
    const std::vector<OwnedFd> theirs = value_of(mesh->exchange(mine, kLongUs));
    for (size_t j = 0; j < 3; ++j) {
      EXPECT_EQ(static_cast<bool>(theirs[j]), i == 2 && j == 0) << i << " from " << j;
    }
  });
}

TEST(FdMesh, WhoDoesNotComeIsNamed) {
  const Groups groups = join_all(options_of(3));
  std::vector<std::unique_ptr<FdMesh>> meshes(3);
  in_threads(3, [&](size_t i) {
    meshes[i] = value_of(FdMesh::connect(*groups[i], {0, 1, 2}, kLongUs));
    if (i == 1) return;
    const Status status = meshes[i]->exchange(-1, 100'000).status();
    EXPECT_EQ(status.code(), Code::kTimeout);
    EXPECT_NE(status.message().find(groups[i]->name_of(1) + " did not come within 100 ms"),
              std::string::npos)
        << status.message();
  });
}

TEST(FdMesh, FaultOfTheGroupEndsAnExchange) {
  const Groups groups = join_all(options_of(3));
  std::vector<std::unique_ptr<FdMesh>> meshes(3);
  in_threads(3, [&](size_t i) {
    meshes[i] = value_of(FdMesh::connect(*groups[i], {0, 1, 2}, kLongUs));
    (void)groups[i]->barrier("connected", kLongUs);
    if (i == 1) return groups[1]->report_fault({Code::kInternal, "broken"});
    const std::string text = meshes[i]->exchange(-1, kLongUs).status().message();
    EXPECT_NE(text.find("reported: broken"), std::string::npos) << text;
  });
}

TEST(FdMesh, WhoIsGoneIsNamed) {
  const Groups groups = join_all(options_of(2));
  std::vector<std::unique_ptr<FdMesh>> meshes(2);
  in_threads(2, [&](size_t i) {
    meshes[i] = value_of(FdMesh::connect(*groups[i], {0, 1}, kLongUs));
  });
  meshes[1].reset();
  const Status status = meshes[0]->exchange(-1, kLongUs).status();
  EXPECT_EQ(status.code(), Code::kPeerFailed);
  EXPECT_NE(status.message().find(groups[0]->name_of(1)), std::string::npos) << status.message();
}

TEST(FdMesh, WhatIsNotOpenIsRefused) {
  const Groups groups = join_all(options_of(2));
  in_threads(2, [&](size_t i) {
    const auto mesh = value_of(FdMesh::connect(*groups[i], {0, 1}, kLongUs));
    EXPECT_TRUE(groups[i]->barrier("connected", kLongUs));
    if (i == 1) return;
    const Status status = mesh->exchange(987'654, kLongUs).status();
    EXPECT_EQ(status.code(), Code::kInvalidArgument);
    EXPECT_NE(status.message().find("file descriptor 987654 is not open"), std::string::npos)
        << status.message();
    EXPECT_EQ(mesh->exchange(std::vector<int>{-1}, kLongUs).status().code(),
              Code::kInvalidArgument);
  });
}

TEST(FdMesh, WrongPeersAreRefusedOnAllRanks) {
  std::vector<RendezvousOptions> options = options_of(3);
  options[2].host_id = "another";
  const Groups groups = join_all(options);
  for (const std::vector<uint32_t>& peers :
       std::vector<std::vector<uint32_t>>{{0, 1, 2}, {1, 0}, {0, 0, 1}, {}, {0, 1, 9}}) {
    in_threads(3, [&](size_t i) {
      const Status status =
          FdMesh::connect(*groups[i], i == 0 ? peers : groups[i]->ranks_of_this_host(), kLongUs)
              .status();
      EXPECT_EQ(status.is_ok(), i == 2) << status.message();
    });
  }
}

TEST(FdMesh, PeersThatDisagreeAreTold) {
  const Groups groups = join_all(options_of(3));
  in_threads(3, [&](size_t i) {
    const std::vector<uint32_t> peers =
        i == 0 ? std::vector<uint32_t>{0, 1} : std::vector<uint32_t>{0, 1, 2};
    const std::string text = FdMesh::connect(*groups[i], peers, kLongUs).status().message();
    EXPECT_NE(text.find("has other peers than"), std::string::npos) << text;
  });
}

TEST(UnixSocket, NoMessageCarriesMoreThanWasAskedFor) {
  int pair[2];
  ASSERT_EQ(socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_NONBLOCK, 0, pair), 0);
  const OwnedFd a(pair[0]), b(pair[1]);
  WithFd received;
  EXPECT_FALSE(value_of(receive_with_fd(b.get(), &received))) << "nothing was sent";
  EXPECT_TRUE(value_of(send_with_fd(a.get(), std::string(65, 'x'), -1)));
  EXPECT_FALSE(receive_with_fd(b.get(), &received)) << "longer than any message of ours";
  EXPECT_TRUE(value_of(send_with_fd(a.get(), "x", a.get())));
  EXPECT_TRUE(value_of(receive_with_fd(b.get(), &received)));
  EXPECT_TRUE(received.fd);
}

}  // namespace
}  // namespace mkernel::test
