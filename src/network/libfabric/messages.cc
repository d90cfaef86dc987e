#include "network/libfabric/messages.h"

#include <concepts>
#include <cstring>
#include <string_view>
#include <type_traits>
#include <utility>

namespace mkernel::libfabric {
namespace {

constexpr uint32_t kAddressMagic = 0x4146'4b4d;  // "MKFA"
constexpr uint32_t kKeyMagic = 0x4b46'4b4d;      // "MKFK"
constexpr uint32_t kVersion = 1;

/// Puts fields in a row: integers in the machine's byte order, which all ranks share.
class Writer {
 public:
  template <std::integral T>
  void operator()(const T& value) {
    bytes_.append(reinterpret_cast<const char*>(&value), sizeof value);
  }
  void operator()(const std::string& text) {
    (*this)(static_cast<uint32_t>(text.size()));
    bytes_ += text;
  }
  std::string take() { return std::move(bytes_); }

 private:
  std::string bytes_;
};

/// Takes them out again; what is too short gives zeros and is not complete().
class Reader {
 public:
  explicit Reader(std::string_view bytes) : bytes_(bytes) {}

  template <std::integral T>
  void operator()(T& value) {
    const std::string_view field = take(sizeof value);
    if (!short_) std::memcpy(&value, field.data(), sizeof value);
  }
  void operator()(std::string& text) {
    uint32_t length = 0;
    (*this)(length);
    text = take(length);
  }
  bool complete() const { return !short_ && bytes_.empty(); }

 private:
  std::string_view take(size_t length) {
    short_ |= length > bytes_.size();
    if (short_) return {};
    const std::string_view field = bytes_.substr(0, length);
    bytes_.remove_prefix(length);
    return field;
  }

  std::string_view bytes_;
  bool short_ = false;
};

// One list of fields for both directions.
template <class Visitor, class Memory>
void visit_memory(Visitor& visit, Memory& memory) {
  visit(memory.base);
  visit(memory.key);
}
template <class Visitor, class Address>
requires std::is_same_v<std::remove_const_t<Address>, EndpointAddress>
void visit_fields(Visitor& visit, Address& a) {
  visit(a.rank);
  visit(a.num_ranks);
  visit(a.provider);
  visit(a.name);
  visit_memory(visit, a.flags);
}
template <class Visitor, class Key>
requires std::is_same_v<std::remove_const_t<Key>, RegionKey>
void visit_fields(Visitor& visit, Key& k) {
  visit(k.rank);
  visit(k.address);
  visit(k.bytes);
  visit_memory(visit, k.memory);
}

template <class Message>
std::string encode_message(uint32_t magic, const Message& message) {
  Writer writer;
  writer(magic);
  writer(kVersion);
  visit_fields(writer, message);
  return writer.take();
}

template <class Message>
Result<Message> decode_message(uint32_t magic, const char* what, const std::string& bytes) {
  Reader reader(bytes);
  uint32_t found_magic = 0;
  uint32_t version = 0;
  reader(found_magic);
  reader(version);
  const auto refuse = [&](const std::string& why) {
    return Status(Code::kInvalidArgument,
                  std::to_string(bytes.size()) + " bytes are no " + what + ": " + why);
  };
  if (found_magic != magic) return refuse("of another kind");
  if (version != kVersion) {
    return refuse("version " + std::to_string(version) + ", not " + std::to_string(kVersion));
  }
  Message message;
  visit_fields(reader, message);
  if (!reader.complete()) return refuse("of the wrong length");
  return message;
}

}  // namespace

std::string encode(const EndpointAddress& address) {
  return encode_message(kAddressMagic, address);
}
Result<EndpointAddress> decode_address(const std::string& bytes) {
  return decode_message<EndpointAddress>(kAddressMagic, "address of libfabric", bytes);
}
std::string encode(const RegionKey& key) { return encode_message(kKeyMagic, key); }
Result<RegionKey> decode_key(const std::string& bytes) {
  return decode_message<RegionKey>(kKeyMagic, "region key of libfabric", bytes);
}

}  // namespace mkernel::libfabric
