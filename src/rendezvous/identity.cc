#include "rendezvous/identity.h"

#include <unistd.h>

#include <array>
#include <climits>
#include <fstream>

#include "rendezvous/text.h"

namespace mkernel {
namespace {

std::string first_line_of(const char* path) {
  std::ifstream file(path);
  std::string line;
  std::getline(file, line);
  return line.substr(0, 64);
}

std::string network_name_space() {
  std::array<char, 128> text{};
  const ssize_t length = readlink("/proc/self/ns/net", text.data(), text.size());
  return length > 0 ? std::string(text.data(), static_cast<size_t>(length)) : "";
}

}  // namespace

Result<Identity> identity_of_this_process() {
  const std::string boot = first_line_of("/proc/sys/kernel/random/boot_id");
  const std::string net = network_name_space();
  if (boot.empty() || net.empty()) {
    return Status(Code::kUnavailable,
                  std::string("this process cannot tell its host from others: ") +
                      (boot.empty() ? "/proc/sys/kernel/random/boot_id" : "/proc/self/ns/net") +
                      " cannot be read; /proc must be mounted, or host_id be set");
  }
  std::array<char, HOST_NAME_MAX + 1> host_name{};
  if (gethostname(host_name.data(), host_name.size() - 1) != 0) host_name[0] = '?';
  return Identity{.host_id = boot + " " + net,
                  .host_name = printable(host_name.data(), kMaxHostBytes),
                  .pid = static_cast<uint32_t>(getpid())};
}

std::string name_of_rank(uint32_t rank, const Identity& identity) {
  return "rank " + std::to_string(rank) + " (host " + printable(identity.host_name, 64) + ", pid " +
         std::to_string(identity.pid) + ")";
}

}  // namespace mkernel
