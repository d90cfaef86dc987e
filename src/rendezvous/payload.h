// What the messages between ranks say, and its bytes. decode() gives nothing for bytes that are not
// exactly one such payload.
#pragma once
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include <mkernel/status.h>

#include "rendezvous/identity.h"
#include "rendezvous/sha256.h"

namespace mkernel {

constexpr size_t kMaxTextBytes = 4096;             // of an error, as sent
constexpr size_t kMaxWhatBytes = 256;              // name of a collective
constexpr size_t kMaxContributionBytes = 1 << 20;  // one rank's part of a collective
constexpr size_t kMaxResultBytes = 256 << 20;      // all ranks' parts together
constexpr size_t kMaxApplicantBytes = 4096;        // what who is not yet a member may send at once
// Greatest payloads, the fields around the contents included.
constexpr size_t kMaxToHubBytes = kMaxContributionBytes + 1024;
constexpr size_t kMaxFromHubBytes = kMaxResultBytes + (1 << 20);

struct Hello {
  uint32_t rank = 0, world = 0;
  int64_t remaining_us = 0;  // how long the applicant will wait for the others
  Digest nonce{};
  Identity identity;

  std::string encode() const;
  static std::optional<Hello> decode(std::string_view bytes);
};

/// What the hub tells all when the last rank is there. Rank 0's limits hold for everybody.
struct Welcome {
  int64_t silence_limit_us = 0;
  std::vector<Identity> members;  // by rank

  std::string encode() const;
  static std::optional<Welcome> decode(std::string_view bytes, uint32_t world);
};

struct Contribution {
  uint64_t number = 0;  // of the collective, counted from 0
  int64_t timeout_us = 0;
  std::string what, part;

  std::string encode() const;
  static std::optional<Contribution> decode(std::string_view bytes);
};

std::string encode_result(uint64_t number, const std::vector<std::string>& parts);
/// The parts, if the bytes are the result of that collective.
std::optional<std::vector<std::string>> decode_result(std::string_view bytes, uint64_t number,
                                                      uint32_t world);

/// An error on the wire. `number`: the collective that failed; 0 elsewhere.
std::string encode_error(uint64_t number, const Status& status);
struct ErrorPayload {
  uint64_t number;
  Status status;
};
std::optional<ErrorPayload> decode_error(std::string_view bytes);

std::string encode_digest(const Digest& digest);
std::optional<Digest> decode_digest(std::string_view bytes);

/// What proves to the hub that an applicant knows the secret, and the other way round. Both cover
/// all that the two have said, so nothing of it can be used again.
Digest proof_of_applicant(const std::string& secret, std::string_view run_id,
                          const Digest& challenge, std::string_view hello);
Digest proof_of_hub(const std::string& secret, std::string_view run_id, const Digest& challenge,
                    std::string_view hello);

}  // namespace mkernel
