// One rank of an exchange of chunks with a process elsewhere, which it meets over a TCP socket:
//   network_exchange RANK OWN_ADDRESS ADDRESS_OF_RANK_0 PORT auto|always
// Rank 0 listens there, rank 1 calls. Exits with 77 and "skipped: REASON" where libfabric is
// missing.
#include <arpa/inet.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <string>
#include <thread>

#include "transport/chunk_exchange.h"

namespace mkernel::test {
namespace {

/// A socket to the other rank; negative if there is none within ten seconds.
int meet_over_tcp(bool listens, const char* address, uint16_t port) {
  sockaddr_in at{};
  at.sin_family = AF_INET;
  at.sin_port = htons(port);
  if (inet_pton(AF_INET, address, &at.sin_addr) != 1) return -1;
  const auto* name = reinterpret_cast<const sockaddr*>(&at);
  if (listens) {
    const int listener = socket(AF_INET, SOCK_STREAM, 0);
    const int yes = 1;  // the port may still be cooling down from an exchange before this one
    (void)setsockopt(listener, SOL_SOCKET, SO_REUSEADDR, &yes, sizeof yes);
    if (bind(listener, name, sizeof at) != 0 || listen(listener, 1) != 0) return -1;
    return accept(listener, nullptr, nullptr);
  }
  for (int attempt = 0; attempt < 100; ++attempt) {
    const int fd = socket(AF_INET, SOCK_STREAM, 0);
    if (connect(fd, name, sizeof at) == 0) return fd;
    (void)close(fd);
    std::this_thread::sleep_for(std::chrono::milliseconds(100));
  }
  return -1;
}

int run(uint32_t rank, const char* own, const char* of_rank_0, uint16_t port, bool staged) {
  LibfabricOptions options;
  options.provider = "tcp";
  options.interface = own;
  options.max_in_flight = 64;
  options.staging = staged ? Staging::kAlways : Staging::kAuto;
  options.staging_chunk_bytes = 20'000;
  if (const std::string reason = why_no_libfabric(); !reason.empty()) {
    std::printf("skipped: %s\n", reason.c_str());
    return 77;
  }
  const int fd = meet_over_tcp(rank == 0, of_rank_0, port);
  if (fd < 0) {
    std::fprintf(stderr, "rank %u: the other rank was not met at %s\n", rank, of_rank_0);
    return 1;
  }
  const ByteChannel channel(fd);
  const std::string error = ChunkExchange({}, rank, options).run(channel);
  if (!error.empty()) std::fprintf(stderr, "rank %u: %s\n", rank, error.c_str());
  return error.empty() ? 0 : 1;
}

}  // namespace
}  // namespace mkernel::test

int main(int argc, char** argv) {
  if (argc != 6) {
    std::fprintf(stderr, "usage: %s RANK OWN_ADDRESS ADDRESS_OF_RANK_0 PORT auto|always\n",
                 argv[0]);
    return 2;
  }
  return mkernel::test::run(static_cast<uint32_t>(std::atoi(argv[1])), argv[2], argv[3],
                            static_cast<uint16_t>(std::atoi(argv[4])),
                            std::string(argv[5]) == "always");
}
