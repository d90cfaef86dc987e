// The inside of fake_verbs.h: what all devices of a fabric share, and how requests move.
#pragma once
#include <array>
#include <cstdint>
#include <deque>
#include <map>
#include <mutex>
#include <random>
#include <set>
#include <string>
#include <thread>
#include <tuple>
#include <utility>
#include <vector>

#include "transport/fake_verbs.h"

namespace mkernel::test {

struct FakeQueue {
  uint32_t depth = 0;
  std::deque<std::pair<verbs::Completion, uint32_t>> entries = {};  // with the queue pair's number
};

struct FakePosted {
  verbs::SendRequest request;
  std::vector<char> inline_bytes = {};
  struct Piece {
    uint64_t begin, end;
  };
  std::vector<Piece> pieces = {};  // still to be placed
  bool told = false;               // its immediate is with the receiver
  const char* injected = nullptr;  // error
  uint32_t rnr_tries = 0;
};

/// A queue pair and its state.
struct FakePair {
  uint32_t number = 0;
  uint32_t rank = 0;
  size_t device_idx = 0;
  verbs::QueuePairConfig config;
  verbs::ConnectConfig connection;
  uint32_t inline_bytes = 0;
  FakeQueue* sends = nullptr;
  FakeQueue* receives = nullptr;
  enum class State { kInit, kReady, kError } state = State::kInit;
  std::thread::id poster;
  std::deque<FakePosted> posted = {};            // not complete
  std::deque<verbs::ReceiveRequest> ready = {};  // receives
  std::deque<uint64_t> occupied = {};            // ids in the send queue, until polled
};

class FakeHandle final : public verbs::AddressHandle {
 public:
  FakeHandle(uint32_t number, const verbs::Gid& gid) : number_(number), gid_(gid) {}
  uint32_t number() const override { return number_; }
  const verbs::Gid& gid() const { return gid_; }

 private:
  const uint32_t number_;
  const verbs::Gid gid_;
};

class FakeWorld {
 public:
  explicit FakeWorld(const FakeConfig& c) : config(c), random(c.seed) {}

  const FakeDevice& device(size_t idx) const { return config.devices[idx]; }
  verbs::Gid gid(uint32_t rank, size_t device_idx, uint32_t index) const;
  void violate(const std::string& what);

  Status post(FakePair& pair, std::span<const verbs::SendRequest> requests);
  size_t poll(FakeQueue& queue, std::span<verbs::Completion> completions);
  /// Moves what is posted on a rank's device, some steps.
  void move(uint32_t rank, size_t device_idx);

  mutable std::mutex mutex;  // guards all below
  const FakeConfig config;
  std::mt19937_64 random;
  std::map<uint32_t, FakePair*> pairs;                 // by number
  std::map<uint32_t, FakeRegistration> registrations;  // by key
  // Handles that a rank's device has made, by what they lead to.
  std::map<std::tuple<uint32_t, size_t, verbs::Gid>, uint32_t> handles;
  struct Late {
    FakePair* receiver;
    verbs::Completion completion;
  };
  std::vector<Late> late = {};  // immediates that wait for their time
  std::set<std::string> held;
  std::set<uint32_t> dead;
  std::map<uint64_t, const char*> failing;  // by number of the request
  uint64_t num_requests = 0;
  uint64_t num_doorbells = 0;
  uint64_t num_signaled = 0;
  std::vector<std::string> violations = {};
  uint32_t next_number = 17;

 private:
  void check_request(const FakePair& pair, const verbs::SendRequest& request);
  bool is_inside(uint32_t key, uint32_t rank, size_t device_idx, uint64_t address, uint64_t bytes,
                 bool remote) const;
  void move_in_order(FakePair& pair);
  void move_in_any_order(FakePair& pair);
  /// One step of a request; whether it has ended.
  bool step(FakePair& pair, FakePosted& posted);
  bool tell(FakePair& sender, FakePair& receiver, FakePosted& posted);
  FakePair* target_of(const FakePair& pair, const FakePosted& posted) const;
  void place(const FakePosted& posted, const FakePosted::Piece& piece);
  void complete(FakePair& pair, const verbs::SendRequest& request, const char* error);
  bool fail(FakePair& pair, const verbs::SendRequest& request, const char* error);
  void flush(FakePair& pair);
  void deliver(FakePair& receiver, const verbs::Completion& completion);
  void deliver_late();
};

}  // namespace mkernel::test
