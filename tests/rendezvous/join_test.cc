// Joining: who may come late, who is refused and told why, and strangers, who disturb nobody.
#include <gtest/gtest.h>
#include <poll.h>

#include <array>
#include <atomic>
#include <chrono>
#include <future>
#include <string>
#include <thread>
#include <vector>

#include "rendezvous/connection.h"
#include "rendezvous/groups.h"
#include "rendezvous/payload.h"
#include "rendezvous/socket.h"
#include "rendezvous/text.h"

namespace mkernel::test {
namespace {

int64_t long_from_now() { return steady_us() + kLongUs; }

OwnedFd connect_as_stranger(const std::string& address) {
  return value_of(connect_to(value_of(resolve(value_of(parse_address(address)))), long_from_now()));
}

void send_bytes(const OwnedFd& fd, const std::string& bytes) {
  ASSERT_EQ(send(fd.get(), bytes.data(), bytes.size(), MSG_NOSIGNAL),
            static_cast<ssize_t>(bytes.size()));
}

/// What the hub says to a stranger who sends these bytes.
std::string refusal_of(const std::string& address, const std::string& bytes) {
  OwnedFd fd = connect_as_stranger(address);
  send_bytes(fd, bytes);
  Connection connection(std::move(fd), 0, kMaxApplicantBytes);
  const auto message = value_of(connection.receive_until(long_from_now()));
  if (!message || message->type != MessageType::kRefuse) return "no refusal";
  return decode_error(message->payload)->status.message();
}

/// Runs `disturb(address)` while rank 0 waits for rank 1, and then lets rank 1 join.
template <class Disturb>
void expect_joins_in_spite_of(const std::vector<RendezvousOptions>& options, Disturb disturb) {
  std::thread rank_zero([&] {
    const auto group = value_of(ProcessGroup::join(options[0]));
    EXPECT_TRUE(group->barrier("end", kLongUs));
  });
  disturb(options[0].address);
  const auto group = value_of(ProcessGroup::join(options[1]));
  EXPECT_TRUE(group->barrier("end", kLongUs));
  rank_zero.join();
}

void expect_refusal(const RendezvousOptions& wrong, const std::string& why) {
  const Status status = ProcessGroup::join(wrong).status();
  EXPECT_EQ(status.code(), Code::kInvalidArgument);
  EXPECT_TRUE(status.message().starts_with("rank 0 at 127.0.0.1:")) << status.message();
  EXPECT_NE(status.message().find(why), std::string::npos) << status.message();
}

TEST(Join, RankZeroMayComeLate) {
  std::vector<RendezvousOptions> options = options_of(3);
  options[0].listener->close();
  options[0].listener = nullptr;
  in_threads(3, [&](size_t i) {
    if (i == 0) std::this_thread::sleep_for(std::chrono::milliseconds(150));
    EXPECT_TRUE(value_of(ProcessGroup::join(options[i]))->barrier("b", kLongUs));
  });
}

TEST(Join, OthersMayComeLate) {
  const std::vector<RendezvousOptions> options = options_of(3);
  in_threads(3, [&](size_t i) {
    if (i == 2) std::this_thread::sleep_for(std::chrono::milliseconds(150));
    EXPECT_TRUE(value_of(ProcessGroup::join(options[i]))->barrier("b", kLongUs));
  });
}

TEST(Join, WhoDoesNotComeIsNamedToAll) {
  std::vector<RendezvousOptions> options = options_of(7);
  options[0].join_timeout_us = 300'000;
  options.erase(options.begin() + 5);
  options.erase(options.begin() + 2);
  for (const Status& status : statuses_of_join(options)) {
    EXPECT_EQ(status.code(), Code::kTimeout);
    EXPECT_NE(status.message().find("ranks 2, 5 did not come within 300 ms"), std::string::npos)
        << status.message();
  }
}

TEST(Join, TheShortestLimitHoldsForAll) {
  std::vector<RendezvousOptions> options = options_of(4);
  options[1].join_timeout_us = 200'000;
  options.pop_back();
  for (const Status& status : statuses_of_join(options)) {
    EXPECT_EQ(status.code(), Code::kTimeout);
    EXPECT_NE(status.message().find("rank 3 did not come within "), std::string::npos)
        << status.message();
  }
}

TEST(Join, RankZeroThatDoesNotComeIsNamed) {
  std::vector<RendezvousOptions> options = options_of(2);
  options[0].listener->close();
  options[1].join_timeout_us = 100'000;
  const Status status = ProcessGroup::join(options[1]).status();
  EXPECT_EQ(status.code(), Code::kTimeout);
  EXPECT_TRUE(status.message().starts_with("rank 1 did not reach rank 0 at " + options[1].address +
                                           " within 100 ms: "))
      << status.message();
  EXPECT_NE(status.message().find("Connection refused"), std::string::npos) << status.message();
}

TEST(Join, WrongRanksAreRefusedAndTheRightOneIsNot) {
  std::vector<RendezvousOptions> options = options_of(2);
  for (RendezvousOptions& o : options) o.secret = "open sesame";
  expect_joins_in_spite_of(options, [&](const std::string&) {
    RendezvousOptions wrong = options[1];
    wrong.run_id = "another";
    expect_refusal(wrong, "another run");
    wrong = options[1];
    wrong.world = 3;
    expect_refusal(wrong, "was started as one of 3 ranks, and rank 0 as one of 2");
    for (const char* secret : {"", "open", "open sesame "}) {
      wrong = options[1];
      wrong.secret = secret;
      expect_refusal(wrong, "does not know the secret");
    }
  });
}

TEST(Join, SecondOfTheSameRankIsRefused) {
  const std::vector<RendezvousOptions> options = options_of(3);
  std::promise<std::string> refusal;
  std::atomic<int> num_joined = 0;
  in_threads(4, [&](size_t i) {
    // Twice rank 1, and rank 2 only when one of them has been refused.
    std::string text;
    if (i == 3) text = refusal.get_future().get();
    const auto group = ProcessGroup::join(options[std::array{0, 1, 1, 2}[i]]);
    if (group) {
      ++num_joined;
      EXPECT_TRUE((*group)->barrier("b", kLongUs));
    } else {
      refusal.set_value(group.status().message());
    }
    if (i != 3) return;
    EXPECT_NE(text.find("comes second: rank 1 (host "), std::string::npos) << text;
  });
  EXPECT_EQ(num_joined, 3);
}

/// Applies as the rank of these options; what the hub answers to that.
MessageType apply_as(const RendezvousOptions& options, Connection& connection) {
  Hello hello;
  hello.rank = options.rank;
  hello.world = options.world;
  hello.remaining_us = kLongUs;
  connection.queue(MessageType::kHello, hello.encode());
  const auto answer = value_of(connection.receive_until(long_from_now()));
  const Digest challenge = decode_digest(answer->payload).value();
  const Digest proof = proof_of_applicant("", options.run_id, challenge, hello.encode());
  connection.queue(MessageType::kProof, encode_digest(proof));
  return value_of(connection.receive_until(long_from_now()))->type;
}

TEST(Join, RankThatGoesBeforeAllAreThereMayComeAgain) {
  const std::vector<RendezvousOptions> options = options_of(3);
  const auto new_connection = [&] {
    return Connection(connect_as_stranger(options[0].address), hash_of_run("run"), 4096);
  };
  std::thread rank_zero([&] { EXPECT_TRUE(ProcessGroup::join(options[0])); });
  {
    Connection first = new_connection();
    EXPECT_EQ(apply_as(options[1], first), MessageType::kAdmitted);
  }
  Connection second = new_connection();
  while (apply_as(options[1], second) == MessageType::kRefuse) second = new_connection();
  EXPECT_TRUE(ProcessGroup::join(options[2]));
  EXPECT_EQ(value_of(second.receive_until(long_from_now()))->type, MessageType::kWelcome);
  rank_zero.join();
}

TEST(Join, StrangersAreRefusedAndToldWhy) {
  const uint64_t run = hash_of_run("run");
  std::string of_version_2 = encode_message(MessageType::kHello, run, "");
  of_version_2[4] = 2;
  expect_joins_in_spite_of(options_of(2), [&](const std::string& address) {
    EXPECT_NE(refusal_of(address, "GET / HTTP/1.1\r\nHost: mkernel\r\n\r\n")
                  .find("no message of mkernel"),
              std::string::npos);
    EXPECT_NE(refusal_of(address, of_version_2).find("protocol version 2"), std::string::npos);
    EXPECT_NE(refusal_of(address, encode_message(MessageType::kHello, run, std::string(5000, 'x')))
                  .find("5000 bytes: at most 4096"),
              std::string::npos);
    EXPECT_NE(refusal_of(address, encode_message(MessageType::kHello, run, "hello"))
                  .find("its hello cannot be read"),
              std::string::npos);
    EXPECT_NE(refusal_of(address, encode_message(MessageType::kProof, run, "")).find("out of turn"),
              std::string::npos);
    EXPECT_NE(refusal_of(address, encode_message(MessageType::kContribute, hash_of_run("old"), ""))
                  .find("another run"),
              std::string::npos);
  });
}

TEST(Join, StrangersWhoSayNothingKeepNobodyOut) {
  std::vector<OwnedFd> idle;
  expect_joins_in_spite_of(options_of(2), [&](const std::string& address) {
    for (int i = 0; i < 200; ++i) {
      idle.push_back(connect_as_stranger(address));
      if (i % 3 == 0) send_bytes(idle.back(), "mkrv\x01");  // and no more
      if (i % 3 == 1) idle.pop_back();                      // gone at once
    }
  });
}

TEST(Join, StrangersDisturbNoGroupThatIsComplete) {
  const std::vector<RendezvousOptions> options = options_of(2, "new");
  const Groups groups = join_all(options);
  EXPECT_NE(refusal_of(options[0].address,
                       encode_message(MessageType::kContribute, hash_of_run("old"), "late"))
                .find("another run"),
            std::string::npos);
  expect_refusal(options[1], "comes second");
  in_threads(2, [&](size_t i) { EXPECT_TRUE(groups[i]->barrier("b", kLongUs)); });
}

/// Serves one applicant as a hub that does not know the secret would.
void serve_falsely(const Listener& listener) {
  ASSERT_TRUE(value_of(wait_for(listener.fd(), POLLIN, long_from_now())));
  Connection connection(value_of(accept_one(listener.fd())).fd, hash_of_run("run"), 4096);
  ASSERT_TRUE(value_of(connection.receive_until(long_from_now())));
  connection.queue(MessageType::kChallenge, encode_digest(random_digest()));
  ASSERT_TRUE(value_of(connection.receive_until(long_from_now())));
  connection.queue(MessageType::kAdmitted, encode_digest(random_digest()));
  (void)connection.receive_until(long_from_now());
}

TEST(Join, HubThatDoesNotKnowTheSecretIsRefusedToo) {
  const std::vector<RendezvousOptions> options = options_of(2);
  std::thread hub([&] { serve_falsely(*options[0].listener); });
  const Status status = ProcessGroup::join(options[1]).status();
  EXPECT_NE(status.message().find("it does not know the secret"), std::string::npos)
      << status.message();
  hub.join();
}

TEST(Join, WhatListensThereMayBeSomethingElse) {
  const std::vector<RendezvousOptions> options = options_of(2);
  std::thread other([&] {
    ASSERT_TRUE(value_of(wait_for(options[0].listener->fd(), POLLIN, long_from_now())));
    const OwnedFd fd = value_of(accept_one(options[0].listener->fd())).fd;
    send_bytes(fd, "SSH-2.0-OpenSSH_9.2p1 Debian-2\r\n");
    (void)wait_for(fd.get(), POLLIN, steady_us() + 100'000);
  });
  const Status status = ProcessGroup::join(options[1]).status();
  EXPECT_NE(status.message().find("no message of mkernel"), std::string::npos) << status.message();
  other.join();
}

TEST(Join, OptionsThatAreNotAllowedAreNamed) {
  const RendezvousOptions good = options_of(2)[1];
  const auto error_of = [&](auto change) {
    RendezvousOptions options = good;
    change(options);
    return ProcessGroup::join(options).status().message();
  };
  const auto expect = [](const std::string& text, const std::string& part) {
    EXPECT_NE(text.find(part), std::string::npos) << text;
  };
  expect(error_of([](auto& o) { o.world = 0; }), "world = 0: must be from 1 to 65536");
  expect(error_of([](auto& o) { o.rank = 2; }), "rank = 2: must be below world, 2");
  expect(error_of([](auto& o) { o.address = "nowhere"; }), "\"nowhere\": must be host:port");
  expect(error_of([](auto& o) { o.address = "::1"; }), "\"::1\": must be host:port");
  expect(error_of([](auto& o) { o.address = "h:70000"; }), "from 0 to 65535");
  expect(error_of([](auto& o) { o.address = "h:0"; }), "with a port from 1");
  expect(error_of([](auto& o) { o.run_id.resize(257); }), "run_id = a text of 257 bytes");
  expect(error_of([](auto& o) { o.secret.resize(4097); }), "secret = a text of 4097 bytes");
  expect(error_of([](auto& o) { o.join_timeout_us = 0; }), "join_timeout_us = 0");
  expect(error_of([](auto& o) { o.heartbeat_us = o.silence_limit_us; }), "heartbeat_us = 10000000");
  expect(error_of([](auto& o) { o.silence_limit_us = -1; }), "silence_limit_us = -1");
}

TEST(Listener, ServesTheAddressAndNoOther) {
  const auto listener = value_of(Listener::open("127.0.0.1:0"));
  EXPECT_EQ(listener->address(), listener->bound_to());
  const Status taken = Listener::open(listener->address()).status();
  EXPECT_EQ(taken.code(), Code::kUnavailable);
  EXPECT_NE(taken.message().find("Address already in use"), std::string::npos) << taken.message();
  EXPECT_EQ(value_of(Listener::open("a.name.for.others:0", "127.0.0.1"))->address().substr(0, 18),
            "a.name.for.others:");
  EXPECT_FALSE(Listener::open("1.2.3.4:0")) << "no address of this machine";
}

TEST(Listener, AllInterfacesOnlyIfAsked) {
  std::vector<RendezvousOptions> options = options_of(2);
  options[0].listener = value_of(Listener::open("localhost:0", "*"));
  const std::string port =
      options[0].listener->address().substr(options[0].listener->address().find(':'));
  options[0].address = options[1].address = "127.0.0.1" + port;
  EXPECT_EQ(join_all(options).size(), 2U);
}

TEST(Listener, ServesIpv6) {
  auto listener = Listener::open("[::1]:0");
  if (!listener) GTEST_SKIP() << "no IPv6 on this machine: " << listener.status().message();
  std::vector<RendezvousOptions> options = options_of(2);
  options[0].listener = *listener;
  options[0].address = options[1].address = (*listener)->address();
  EXPECT_EQ(join_all(options).size(), 2U);
}

}  // namespace
}  // namespace mkernel::test
