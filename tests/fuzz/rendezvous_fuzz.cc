// Bytes that may come from anybody: messages, payloads, and applicants to a group in any order. And
// collectives of members in any order, which the hub must keep apart.
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "rendezvous/collectives.h"
#include "rendezvous/join_desk.h"
#include "rendezvous/launcher.h"
#include "rendezvous/message.h"
#include "rendezvous/payload.h"
#include "rendezvous/socket.h"

namespace mkernel {
namespace {

constexpr uint64_t kRun = 7;
constexpr uint32_t kWorld = 3;

void require(bool holds, const char* what) {
  if (holds) return;
  std::fprintf(stderr, "does not hold: %s\n", what);
  std::abort();
}

/// Takes choices, and then bytes, from the fuzzer's input.
class Input {
 public:
  Input(const uint8_t* data, size_t size) : bytes_(reinterpret_cast<const char*>(data), size) {}
  bool is_empty() const { return bytes_.empty(); }
  uint8_t byte() { return static_cast<uint8_t>(some(1).empty() ? 0 : last_[0]); }
  uint32_t below(uint32_t limit) { return byte() % limit; }
  std::string_view some(size_t count) {
    last_ = bytes_.substr(0, count);
    bytes_.remove_prefix(last_.size());
    return last_;
  }
  std::string_view piece() { return some(byte()); }
  std::string_view rest() { return some(bytes_.size()); }

 private:
  std::string_view bytes_, last_;
};

void read_messages(Input in) {
  MessageReader reader(kRun, in.byte());
  while (!in.is_empty()) {
    const std::string_view bytes = in.some(std::min<size_t>(reader.room(), in.byte()));
    require(bytes.size() <= reader.room(), "no more than there is room for");
    reader.append(bytes);
    for (;;) {
      Result<std::optional<Message>> message = reader.next();
      if (!message) return;
      if (!message->has_value()) break;
      const std::string again = encode_message((*message)->type, kRun, (*message)->payload);
      require(again.size() == kHeaderBytes + (*message)->payload.size(), "the length is the same");
    }
  }
}

void read_payloads(Input in) {
  const uint32_t world = in.below(5);
  const std::string bytes(in.rest());
  if (auto hello = Hello::decode(bytes)) require(hello->encode() == bytes, "one form of a hello");
  if (auto all = Welcome::decode(bytes, world))
    require(all->encode() == bytes, "one form of a welcome");
  if (auto part = Contribution::decode(bytes))
    require(part->encode() == bytes, "one form of a part");
  if (auto parts = decode_result(bytes, 0, world)) {
    require(encode_result(0, *parts) == bytes, "one form of a result");
  }
  if (auto error = decode_error(bytes)) {
    require(encode_error(error->number, error->status) == bytes, "one form of an error");
  }
  (void)decode_digest(bytes);
  (void)parse_address(bytes);
  (void)first_host_of(bytes);
}

/// One connection to the desk.
struct Caller {
  Applicant applicant;
  MessageReader reader{kRun, kMaxApplicantBytes};
  std::string hello;  // the last that it sent
  std::optional<Digest> challenge;
  bool proved = false;  // it has sent the right proof
};

/// The next thing that a caller sends: what is right, or whatever the fuzzer says.
std::string next_message(Caller& caller, Input& in) {
  const uint32_t choice = in.below(5);
  if (choice == 0) {
    Hello hello;
    hello.rank = in.below(kWorld + 1);
    hello.world = kWorld + (in.byte() == 1 ? 1 : 0);
    hello.identity.host_name = in.piece();
    caller.hello = hello.encode();
    return encode_message(MessageType::kHello, kRun, caller.hello);
  }
  if ((choice == 1 || choice == 2) && caller.challenge) {
    const std::string secret = choice == 1 ? "secret" : "Secret";
    const Digest proof = proof_of_applicant(secret, "run", *caller.challenge, caller.hello);
    caller.proved = caller.proved || choice == 1;
    return encode_message(MessageType::kProof, kRun, encode_digest(proof));
  }
  if (choice == 3) {
    return encode_message(static_cast<MessageType>(in.below(16)), kRun, in.piece());
  }
  return std::string(in.piece());
}

/// False: it has been refused.
bool serve(Caller& caller, const std::string& bytes) {
  caller.reader.append(std::string_view(bytes).substr(0, caller.reader.room()));
  while (!caller.applicant.is_admitted()) {
    Result<std::optional<Message>> message = caller.reader.next();
    if (!message) return false;
    if (!message->has_value()) return true;
    Result<std::optional<Message>> answer = caller.applicant.take(**message);
    if (!answer) return false;
    if (*answer && (*answer)->type == MessageType::kChallenge) {
      caller.challenge = decode_digest((*answer)->payload);
    }
  }
  return true;
}

void apply(Input in) {
  JoinDesk desk(kWorld, "run", "secret");
  std::vector<std::optional<Caller>> callers(4);
  uint8_t salt = 0;
  while (!in.is_empty()) {
    const uint32_t i = in.below(4);
    std::optional<Caller>& caller = callers[i];
    if (!caller) {
      Digest challenge{};
      challenge[0] = ++salt;
      caller.emplace(Caller{.applicant = Applicant(&desk, challenge, i == 0)});
    }
    const bool was_admitted = caller->applicant.is_admitted();
    const bool goes = in.below(8) == 0;
    if (!goes && serve(*caller, next_message(*caller, in))) {
      require(!caller->applicant.is_admitted() || caller->proved, "nobody is in without a proof");
    } else {
      if (was_admitted) desk.remove(caller->applicant.hello().rank);
      caller.reset();
    }
    std::set<uint32_t> ranks;
    for (uint32_t j = 0; j < callers.size(); ++j) {
      if (!callers[j] || !callers[j]->applicant.is_admitted()) continue;
      const uint32_t rank = callers[j]->applicant.hello().rank;
      require(rank < kWorld && ranks.insert(rank).second, "every rank is there once");
      require((rank == 0) == (j == 0), "rank 0 is the one of this process");
    }
    require(desk.missing().size() + ranks.size() == kWorld, "the list is of those who are there");
    require(desk.is_complete() == (ranks.size() == kWorld), "complete means all");
  }
}

void collect(Input in) {
  Collectives collectives(std::vector<Identity>(kWorld), kRun);
  std::vector<uint64_t> next(kWorld);
  std::vector<bool> waits(kWorld), left(kWorld);
  int64_t now_us = 1;
  while (!in.is_empty()) {
    const uint32_t rank = in.below(kWorld), choice = in.below(8);
    now_us += in.below(4);
    if (choice == 0) {
      left[rank] = true;
      collectives.leave(rank);
    } else if (choice == 1) {
      collectives.expire(now_us);
    } else if (!left[rank] && (!waits[rank] || choice == 2)) {
      Contribution part;
      part.number = next[rank] + (choice == 3 ? in.byte() : 0);
      part.timeout_us = in.below(8);
      part.what = in.some(in.below(2));
      part.part = in.piece();
      const bool is_right = part.number == next[rank] && part.timeout_us > 0;
      require(collectives.contribute(rank, part, now_us).is_ok() == is_right,
              "what is out of turn");
      if (is_right && waits[rank]) return;  // two at once: the members do not do that
      if (is_right) ++next[rank], waits[rank] = true;
    }
    for (const Collectives::Answer& answer : collectives.take_answers()) {
      require(waits[answer.rank], "who is answered has asked, and once");
      waits[answer.rank] = false;
    }
    bool all_wait = true;
    for (uint32_t r = 0; r < kWorld; ++r) all_wait = all_wait && waits[r];
    require(!all_wait || next[0] != next[1] || next[1] != next[2], "who is complete is answered");
  }
}

}  // namespace
}  // namespace mkernel

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace mkernel;
  Input in(data, size);
  switch (in.below(4)) {
    case 0: read_messages(in); break;
    case 1: read_payloads(in); break;
    case 2: apply(in); break;
    default: collect(in); break;
  }
  return 0;
}
