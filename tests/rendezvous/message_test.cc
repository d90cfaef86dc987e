// The bytes on the wire: what is written is read back, and what nobody has written is refused.
#include "rendezvous/message.h"

#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "rendezvous/groups.h"
#include "rendezvous/payload.h"
#include "rendezvous/sha256.h"

namespace mkernel::test {
namespace {

constexpr uint64_t kRun = 0x1122334455667788;

std::string refusal_of(const std::string& bytes, size_t max_payload = 100) {
  return parse_header(bytes, kRun, max_payload).status().message();
}

/// A header with one byte changed.
std::string with_byte(size_t i, char value) {
  std::string bytes = encode_message(MessageType::kHello, kRun, "");
  bytes[i] = value;
  return bytes;
}

TEST(Message, HeaderIsLittleEndianAndHasNoGaps) {
  const std::string bytes = encode_message(MessageType::kChallenge, kRun, "abc");
  EXPECT_EQ(bytes,
            std::string("mkrv\x01\0\x02\0\x88\x77\x66\x55\x44\x33\x22\x11\x03\0\0\0\0\0\0\0abc",
                        kHeaderBytes + 3));
}

TEST(Message, WhatIsNotOursIsRefusedAndNamed) {
  EXPECT_NE(refusal_of("GET / HTTP/1.1\r\nHost: x\r\n\r\n").find("no message of mkernel"),
            std::string::npos);
  EXPECT_NE(refusal_of("mkrv").find("no message"), std::string::npos);
  EXPECT_NE(refusal_of(with_byte(4, 2)).find("protocol version 2; this side speaks version 1"),
            std::string::npos);
  EXPECT_NE(refusal_of(with_byte(6, 99)).find("unknown type 99"), std::string::npos);
  EXPECT_NE(refusal_of(with_byte(8, 1)).find("another run"), std::string::npos);
  EXPECT_NE(refusal_of(encode_message(MessageType::kHello, kRun, std::string(101, 'x')))
                .find("101 bytes: at most 100"),
            std::string::npos);
  EXPECT_TRUE(parse_header(encode_message(MessageType::kRefuse, 1, ""), kRun, 0))
      << "it may be what says that the run is another";
}

TEST(MessageReader, FindsMessagesHoweverTheBytesCome) {
  std::string bytes;
  for (int i = 0; i < 5; ++i) {
    bytes += encode_message(MessageType::kPing, kRun, std::string(static_cast<size_t>(i) * 7, 'a'));
  }
  for (size_t step = 1; step < bytes.size(); ++step) {
    MessageReader reader(kRun, 100);
    size_t count = 0, at = 0;
    while (at < bytes.size()) {
      const size_t size = std::min({step, bytes.size() - at, reader.room()});
      reader.append({&bytes[at], size});
      at += size;
      while (auto message = value_of(reader.next()))
        EXPECT_EQ(message->payload.size(), 7 * count++);
    }
    EXPECT_EQ(count, 5U);
  }
}

TEST(MessageReader, HoldsNoMoreThanOneMessage) {
  MessageReader reader(kRun, 100);
  reader.append(std::string(reader.room(), 'x'));
  EXPECT_EQ(reader.room(), 0U);
  EXPECT_FALSE(reader.next());
}

/// No decoder takes a payload with any of its bytes missing, or one too many.
template <class Decode>
void expect_exact(const std::string& bytes, Decode decode) {
  EXPECT_TRUE(decode(bytes));
  for (size_t size = 0; size < bytes.size(); ++size) EXPECT_FALSE(decode(bytes.substr(0, size)));
  EXPECT_FALSE(decode(bytes + '\0'));
}

TEST(Payload, IsReadBackAndOnlyWhole) {
  const Identity identity{.host_id = "boot", .host_name = "h", .pid = 17};
  const Hello hello{.rank = 3, .world = 5, .remaining_us = -1, .nonce = {1}, .identity = identity};
  expect_exact(hello.encode(), Hello::decode);
  EXPECT_EQ(Hello::decode(hello.encode())->identity.pid, 17U);
  EXPECT_EQ(Hello::decode(hello.encode())->remaining_us, -1);

  const Welcome welcome{.silence_limit_us = 7, .members = {identity, identity}};
  expect_exact(welcome.encode(), [](const std::string& b) { return Welcome::decode(b, 2); });
  EXPECT_FALSE(Welcome::decode(welcome.encode(), 1));
  EXPECT_FALSE(Welcome::decode(welcome.encode(), 3));

  const Contribution part{.number = 1ULL << 40, .timeout_us = 2, .what = "w", .part = "p"};
  expect_exact(part.encode(), Contribution::decode);
  EXPECT_EQ(Contribution::decode(part.encode())->number, part.number);

  expect_exact(encode_result(4, {"", "x"}),
               [](const std::string& b) { return decode_result(b, 4, 2); });
  EXPECT_FALSE(decode_result(encode_result(4, {"x"}), 5, 1)) << "of another collective";
  EXPECT_FALSE(decode_result(encode_result(4, {}), 4, 0xffffffff)) << "more parts than bytes";

  expect_exact(encode_error(9, {Code::kTimeout, "late"}), decode_error);
  EXPECT_EQ(decode_error(encode_error(9, {Code::kTimeout, "late"}))->status.message(), "late");
  EXPECT_FALSE(decode_error(encode_error(9, Status::ok()))) << "no error";
  expect_exact(encode_digest({}), decode_digest);
}

TEST(Payload, LengthsAreCheckedBeforeAnythingIsAllocated) {
  Contribution part{.number = 0, .timeout_us = 1, .what = "w", .part = ""};
  std::string bytes = part.encode();
  bytes.replace(bytes.size() - 4, 4, "\xff\xff\xff\xff");  // the length of the part
  EXPECT_FALSE(Contribution::decode(bytes));
  part.what = std::string(kMaxWhatBytes + 1, 'w');
  EXPECT_FALSE(Contribution::decode(part.encode()));
}

// FIPS 180-4 examples, and RFC 4231 test cases 1, 2 and 6.
TEST(Sha256, IsRightForPublishedExamples) {
  EXPECT_EQ(hex_of(sha256("")), "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855");
  EXPECT_EQ(hex_of(sha256("abc")),
            "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad");
  EXPECT_EQ(hex_of(sha256("abcdbcdecdefdefgefghfghighijhijkijkljklmklmnlmnomnopnopq")),
            "248d6a61d20638b8e5c026930c3e6039a33ce45964ff2167f6ecedd419db06c1");
  EXPECT_EQ(hex_of(sha256(std::string(1'000'000, 'a'))),
            "cdc76e5c9914fb9281a1c7e284d73e67f1809a48a497200e046d39ccc7112cd0");
}

TEST(Sha256, HmacIsRightForPublishedExamples) {
  EXPECT_EQ(hex_of(hmac_sha256(std::string(20, '\x0b'), "Hi There")),
            "b0344c61d8db38535ca8afceaf0bf12b881dc200c9833da726e9376c2e32cff7");
  EXPECT_EQ(hex_of(hmac_sha256("Jefe", "what do ya want for nothing?")),
            "5bdcc146bf60754e6a042426089575c75a003f089d2739839dec58b964ec3843");
  EXPECT_EQ(hex_of(hmac_sha256(std::string(131, '\xaa'),
                               "Test Using Larger Than Block-Size Key - Hash Key First")),
            "60e431591ee0b67f0d8a26aacbf5b77f8e0bc6213728c5140546040f0ee37f54");
}

TEST(Sha256, DigestsAreComparedWhole) {
  Digest a = sha256("a");
  for (size_t i = 0; i < a.size(); ++i) {
    Digest b = a;
    b[i] ^= 0x80;
    EXPECT_FALSE(same_digest(a, b));
  }
  EXPECT_TRUE(same_digest(a, sha256("a")));
}

TEST(Proof, DependsOnEverythingThatWasSaid) {
  const Digest challenge = sha256("challenge");
  const Digest proof = proof_of_applicant("secret", "run", challenge, "hello");
  EXPECT_FALSE(same_digest(proof, proof_of_hub("secret", "run", challenge, "hello")));
  EXPECT_FALSE(same_digest(proof, proof_of_applicant("Secret", "run", challenge, "hello")));
  EXPECT_FALSE(same_digest(proof, proof_of_applicant("secret", "ru", challenge, "nhello")));
  EXPECT_FALSE(same_digest(proof, proof_of_applicant("secret", "run", sha256("x"), "hello")));
}

}  // namespace
}  // namespace mkernel::test
