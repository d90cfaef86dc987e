// Framing of everything that ranks send each other over TCP: a fixed header, then a payload.
// Pure functions of bytes, so that they can be fuzzed. What is in a payload: payload.h.
#pragma once
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include <mkernel/status.h>

namespace mkernel {

enum class MessageType : uint16_t {
  kHello = 1,   // an applicant: who it is
  kChallenge,   // the hub: prove that you know the secret
  kProof,       // the applicant
  kAdmitted,    // the hub: its own proof; the others are still to come
  kWelcome,     // the hub: all are here, and this is who they are
  kRefuse,      // the hub: why the sender may not join, or the join has failed
  kContribute,  // a member: its part of a collective
  kResult,      // the hub: everybody's parts
  kNoResult,    // the hub: why there is none
  kPing,        // the hub: are you there?
  kPong,        // a member
  kFault,       // a member: I have failed; the hub: somebody has
  kLeave,       // either: from here on, a closed connection is no failure
};
constexpr uint16_t kLastMessageType = static_cast<uint16_t>(MessageType::kLeave);

// Both ends must have the same. To be raised with every change of a payload.
constexpr uint16_t kProtocolVersion = 1;

// magic 4, version 2, type 2, run 8, payload length 4, zero 4.
constexpr size_t kHeaderBytes = 24;

struct Message {
  MessageType type;
  std::string payload;
};

/// The name of a run on the wire.
uint64_t hash_of_run(std::string_view run_id);

/// Header and payload. The payload must be shorter than 4 GiB.
std::string encode_message(MessageType type, uint64_t run_hash, std::string_view payload);

struct Header {
  MessageType type;
  uint32_t payload_bytes;
};

/// Reads a header of kHeaderBytes bytes.
/// Errors:  invalid_argument if it is no message of ours, of another version or run (a kRefuse may
///          be of any run: it may be what says so), of no known type, or longer than allowed.
Result<Header> parse_header(std::string_view bytes, uint64_t run_hash, size_t max_payload_bytes);

/// Makes messages of bytes as they come. Never holds more than one message of the greatest allowed
/// length, provided that no more than room() bytes are given to it at once.
class MessageReader {
 public:
  MessageReader(uint64_t run_hash, size_t max_payload_bytes)
      : run_hash_(run_hash), max_payload_bytes_(max_payload_bytes) {}

  void set_max_payload(size_t bytes) { max_payload_bytes_ = bytes; }
  size_t room() const;
  void append(std::string_view bytes) { buffer_.append(bytes); }

  /// The next message, or nothing if it is not complete yet. After an error the stream is lost.
  Result<std::optional<Message>> next();

 private:
  uint64_t run_hash_;
  size_t max_payload_bytes_;
  std::string buffer_;
};

}  // namespace mkernel
