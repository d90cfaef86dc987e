#include "net_pair.h"

#include <algorithm>
#include <cstring>

namespace mkernel::app {

void fill_source(char* data) {
  uint64_t x = 1;
  for (uint64_t i = 0; i < kNetBytes; i += sizeof x) {
    x = x * 6364136223846793005u + 1442695040888963407u;
    std::memcpy(data + i, &x, sizeof x);
  }
}

bool take_equal(const char* sent, char* received, const NetCase& c) {
  const uint64_t bytes = c.bytes * std::min(static_cast<uint64_t>(c.chunks), kNetBytes / c.bytes);
  const bool equal = std::memcmp(sent, received, bytes) == 0;
  std::memset(received, 0, bytes);
  return equal;
}

}  // namespace mkernel::app
