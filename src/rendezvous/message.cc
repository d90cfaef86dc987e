#include "rendezvous/message.h"

#include <algorithm>

#include "rendezvous/sha256.h"
#include "rendezvous/wire.h"

namespace mkernel {
namespace {

constexpr uint32_t kMagic = 0x76726b6d;  // "mkrv"

Status refused(const std::string& message) { return {Code::kInvalidArgument, message}; }

}  // namespace

uint64_t hash_of_run(std::string_view run_id) {
  const Digest digest = sha256("mkernel run " + std::string(run_id));
  return WireReader({reinterpret_cast<const char*>(digest.data()), 8}).number<uint64_t>();
}

std::string encode_message(MessageType type, uint64_t run_hash, std::string_view payload) {
  WireWriter out;
  out.number(kMagic);
  out.number(kProtocolVersion);
  out.number(static_cast<uint16_t>(type));
  out.number(run_hash);
  out.number(static_cast<uint32_t>(payload.size()));
  out.number(uint32_t{0});
  return out.take().append(payload);
}

Result<Header> parse_header(std::string_view bytes, uint64_t run_hash, size_t max_payload_bytes) {
  WireReader in(bytes.substr(0, kHeaderBytes));
  const auto magic = in.number<uint32_t>();
  const auto version = in.number<uint16_t>();
  const auto type = in.number<uint16_t>();
  const auto run = in.number<uint64_t>();
  const auto payload_bytes = in.number<uint32_t>();
  const auto zero = in.number<uint32_t>();
  if (!in.complete() || magic != kMagic) return refused("no message of mkernel");
  // Of another version only what stands before the version is known to be the same.
  if (version != kProtocolVersion) {
    return refused("a message of protocol version " + std::to_string(version) +
                   "; this side speaks version " + std::to_string(kProtocolVersion));
  }
  if (type == 0 || type > kLastMessageType || zero != 0) {
    return refused("a message of unknown type " + std::to_string(type) + ": 1 to " +
                   std::to_string(kLastMessageType));
  }
  if (run != run_hash && type != static_cast<uint16_t>(MessageType::kRefuse)) {
    return refused("a message of another run: its run_id is not the one here");
  }
  if (payload_bytes > max_payload_bytes) {
    return refused("a message of " + std::to_string(payload_bytes) + " bytes: at most " +
                   std::to_string(max_payload_bytes));
  }
  return Header{static_cast<MessageType>(type), payload_bytes};
}

size_t MessageReader::room() const {
  const size_t most = kHeaderBytes + max_payload_bytes_;
  return most - std::min(most, buffer_.size());
}

Result<std::optional<Message>> MessageReader::next() {
  if (buffer_.size() < kHeaderBytes) return std::optional<Message>();
  Result<Header> header = parse_header(buffer_, run_hash_, max_payload_bytes_);
  if (!header) return header.status();
  const size_t total = kHeaderBytes + header->payload_bytes;
  if (buffer_.size() < total) return std::optional<Message>();
  Message message{header->type, buffer_.substr(kHeaderBytes, header->payload_bytes)};
  buffer_.erase(0, total);
  return std::optional(std::move(message));
}

}  // namespace mkernel
