#include "rendezvous/payload.h"

#include "rendezvous/wire.h"

namespace mkernel {
namespace {

// In a result, every part of zero bytes still takes its length: so many parts can be there.
constexpr size_t kLengthBytes = 4;

void write_identity(WireWriter& out, const Identity& identity) {
  out.text(identity.host_id);
  out.text(identity.host_name);
  out.number(identity.pid);
}

Identity read_identity(WireReader& in) {
  Identity identity;
  identity.host_id = in.text(kMaxHostBytes);
  identity.host_name = in.text(kMaxHostBytes);
  identity.pid = in.number<uint32_t>();
  return identity;
}

Digest proof(std::string_view who, const std::string& secret, std::string_view run_id,
             const Digest& challenge, std::string_view hello) {
  WireWriter said;
  said.text(who);
  said.text(run_id);
  said.digest(challenge);
  said.text(hello);
  return hmac_sha256(secret, said.take());
}

}  // namespace

std::string Hello::encode() const {
  WireWriter out;
  out.number(rank);
  out.number(world);
  out.number(remaining_us);
  out.digest(nonce);
  write_identity(out, identity);
  return out.take();
}

std::optional<Hello> Hello::decode(std::string_view bytes) {
  WireReader in(bytes);
  Hello hello;
  hello.rank = in.number<uint32_t>();
  hello.world = in.number<uint32_t>();
  hello.remaining_us = in.number<int64_t>();
  hello.nonce = in.digest();
  hello.identity = read_identity(in);
  if (!in.complete()) return {};
  return hello;
}

std::string Welcome::encode() const {
  WireWriter out;
  out.number(silence_limit_us);
  for (const Identity& member : members) write_identity(out, member);
  return out.take();
}

std::optional<Welcome> Welcome::decode(std::string_view bytes, uint32_t world) {
  WireReader in(bytes);
  Welcome welcome;
  welcome.silence_limit_us = in.number<int64_t>();
  for (uint32_t rank = 0; rank < world && in.num_left() > 0; ++rank) {
    welcome.members.push_back(read_identity(in));
  }
  if (!in.complete() || welcome.members.size() != world || welcome.silence_limit_us <= 0) return {};
  return welcome;
}

std::string Contribution::encode() const {
  WireWriter out;
  out.number(number);
  out.number(timeout_us);
  out.text(what);
  out.text(part);
  return out.take();
}

std::optional<Contribution> Contribution::decode(std::string_view bytes) {
  WireReader in(bytes);
  Contribution contribution;
  contribution.number = in.number<uint64_t>();
  contribution.timeout_us = in.number<int64_t>();
  contribution.what = in.text(kMaxWhatBytes);
  contribution.part = in.text(kMaxContributionBytes);
  if (!in.complete()) return {};
  return contribution;
}

std::string encode_result(uint64_t number, const std::vector<std::string>& parts) {
  WireWriter out;
  out.number(number);
  for (const std::string& part : parts) out.text(part);
  return out.take();
}

std::optional<std::vector<std::string>> decode_result(std::string_view bytes, uint64_t number,
                                                      uint32_t world) {
  WireReader in(bytes);
  if (in.number<uint64_t>() != number || in.num_left() < world * kLengthBytes) return {};
  std::vector<std::string> parts;
  for (uint32_t rank = 0; rank < world; ++rank) parts.push_back(in.text(kMaxContributionBytes));
  if (!in.complete()) return {};
  return parts;
}

std::string encode_error(uint64_t number, const Status& status) {
  WireWriter out;
  out.number(number);
  out.number(static_cast<uint8_t>(status.code()));
  out.text(std::string_view(status.message()).substr(0, kMaxTextBytes));
  return out.take();
}

std::optional<ErrorPayload> decode_error(std::string_view bytes) {
  WireReader in(bytes);
  const auto number = in.number<uint64_t>();
  const auto code = in.number<uint8_t>();
  std::string text = in.text(kMaxTextBytes);
  if (!in.complete() || code == 0 || code > static_cast<uint8_t>(Code::kInternal)) return {};
  return ErrorPayload{number, Status(static_cast<Code>(code), std::move(text))};
}

std::string encode_digest(const Digest& digest) {
  WireWriter out;
  out.digest(digest);
  return out.take();
}

std::optional<Digest> decode_digest(std::string_view bytes) {
  WireReader in(bytes);
  const Digest digest = in.digest();
  if (!in.complete()) return {};
  return digest;
}

Digest proof_of_applicant(const std::string& secret, std::string_view run_id,
                          const Digest& challenge, std::string_view hello) {
  return proof("mkernel applicant", secret, run_id, challenge, hello);
}

Digest proof_of_hub(const std::string& secret, std::string_view run_id, const Digest& challenge,
                    std::string_view hello) {
  return proof("mkernel hub", secret, run_id, challenge, hello);
}

}  // namespace mkernel
