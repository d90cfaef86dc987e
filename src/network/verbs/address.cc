#include "network/verbs/address.h"

#include <cstring>
#include <string_view>
#include <type_traits>

#include "network/verbs/settings.h"

namespace mkernel::verbs {
namespace {

// The last character is the version of what follows.
constexpr std::string_view kAddressMagic = "mkernel-verbs-address-1";
constexpr std::string_view kKeyMagic = "mkernel-verbs-key-1";

class Writer {
 public:
  explicit Writer(std::string_view magic) : bytes_(magic) {}
  template <class T>
  void put(const T& value) {
    static_assert(std::has_unique_object_representations_v<T>);
    bytes_.append(reinterpret_cast<const char*>(&value), sizeof value);
  }
  std::string take() { return std::move(bytes_); }

 private:
  std::string bytes_;
};

/// Reads zeros beyond the end, and remembers that it did.
class Reader {
 public:
  Reader(std::string_view bytes, std::string_view magic) : left_(bytes) {
    is_whole_ = left_.starts_with(magic);
    if (is_whole_) left_.remove_prefix(magic.size());
  }
  template <class T>
  T get() {
    static_assert(std::has_unique_object_representations_v<T>);
    T value{};
    if (left_.size() < sizeof value) {
      is_whole_ = false;
      return value;
    }
    std::memcpy(&value, left_.data(), sizeof value);
    left_.remove_prefix(sizeof value);
    return value;
  }
  bool is_whole() const { return is_whole_; }
  bool ended() const { return is_whole_ && left_.empty(); }
  size_t left() const { return left_.size(); }

 private:
  std::string_view left_;
  bool is_whole_;
};

Status not_ours(const char* what, const std::string& bytes) {
  return {Code::kInvalidArgument, std::string("verbs: ") + std::to_string(bytes.size()) +
                                      " bytes are no " + what + " of this transport and version"};
}

}  // namespace

std::string encode(const EndpointAddress& a) {
  Writer writer(kAddressMagic);
  writer.put(a.service);
  for (const uint32_t n : {a.rank, a.num_ranks, a.qps_per_peer, a.sequence, a.qkey}) writer.put(n);
  writer.put(a.flags_address);
  writer.put(static_cast<uint32_t>(a.rails.size()));
  for (const RailAddress& rail : a.rails) {
    writer.put(rail.gid);
    writer.put(rail.link_layer);
    for (const uint32_t n : {rail.lid, rail.mtu_bytes, rail.flags_rkey}) writer.put(n);
  }
  for (const uint32_t n : a.qp_numbers) writer.put(n);
  return writer.take();
}

Result<EndpointAddress> decode_address(const std::string& bytes) {
  Reader reader(bytes, kAddressMagic);
  EndpointAddress a;
  a.service = reader.get<Service>();
  for (uint32_t* n : {&a.rank, &a.num_ranks, &a.qps_per_peer, &a.sequence, &a.qkey}) {
    *n = reader.get<uint32_t>();
  }
  a.flags_address = reader.get<uint64_t>();
  const auto num_rails = reader.get<uint32_t>();
  if (!reader.is_whole() || num_rails > kMaxRails) return not_ours("address", bytes);
  for (uint32_t i = 0; i < num_rails; ++i) {
    RailAddress rail;
    rail.gid = reader.get<Gid>();
    rail.link_layer = reader.get<LinkLayer>();
    for (uint32_t* n : {&rail.lid, &rail.mtu_bytes, &rail.flags_rkey}) *n = reader.get<uint32_t>();
    a.rails.push_back(rail);
  }
  if (reader.left() != a.num_qps() * sizeof(uint32_t)) return not_ours("address", bytes);
  while (reader.left() > 0) a.qp_numbers.push_back(reader.get<uint32_t>());
  if (!reader.ended()) return not_ours("address", bytes);
  return a;
}

std::string encode(const RegionKey& key) {
  Writer writer(kKeyMagic);
  writer.put(key.address);
  for (const uint32_t rkey : key.rkeys) writer.put(rkey);
  return writer.take();
}

Result<RegionKey> decode_key(const std::string& bytes) {
  Reader reader(bytes, kKeyMagic);
  RegionKey key;
  key.address = reader.get<uint64_t>();
  if (!reader.is_whole() || reader.left() % sizeof(uint32_t) != 0 ||
      reader.left() > kMaxRails * sizeof(uint32_t)) {
    return not_ours("key", bytes);
  }
  while (reader.left() > 0) key.rkeys.push_back(reader.get<uint32_t>());
  return key;
}

}  // namespace mkernel::verbs
