// What the hub knows of the collectives under way: whose part has come, and who is told what when
// the last one has, or when it never will. A collective fails on all ranks or on none. No sockets.
// Not thread safe.
#pragma once
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include <mkernel/status.h>

#include "rendezvous/connection.h"
#include "rendezvous/identity.h"
#include "rendezvous/payload.h"

namespace mkernel {

class Collectives {
 public:
  Collectives(std::vector<Identity> members, uint64_t run_hash)
      : members_(std::move(members)),
        run_hash_(run_hash),
        next_(members_.size()),
        left_(members_.size()) {}

  /// Errors:  invalid_argument if the rank does not keep to the order of its own collectives.
  Status contribute(uint32_t rank, Contribution contribution, int64_t now_us);
  /// Nothing more will come from the rank: what still waits for it fails.
  void leave(uint32_t rank);
  /// Ends what has waited for longer than the first of its ranks wanted to.
  void expire(int64_t now_us);
  /// When expire() will have to do something; INT64_MAX: never.
  int64_t next_deadline_us() const;

  /// What is to be sent, and to whom, since the last call.
  struct Answer {
    uint32_t rank;
    Frame frame;
  };
  std::vector<Answer> take_answers() { return std::exchange(answers_, {}); }

 private:
  /// One collective. It is forgotten when all ranks have come to it, or left before.
  struct Round {
    std::string what;
    uint32_t first_rank;
    std::vector<std::optional<std::string>> parts;  // by rank
    uint32_t num_parts = 0;
    size_t num_bytes = 0;
    int64_t timeout_us, deadline_us;
    Frame failure;  // null: not failed
  };

  void add(Round& round, uint64_t number, uint32_t rank, Contribution contribution);
  void settle(uint64_t number);
  void fail(Round& round, uint64_t number, Code code, const std::string& why);
  std::string missing_from(const Round& round) const;

  const std::vector<Identity> members_;
  const uint64_t run_hash_;
  std::map<uint64_t, Round> rounds_;  // by number
  std::vector<uint64_t> next_;        // by rank: number of its next collective
  std::vector<char> left_;            // by rank
  std::vector<Answer> answers_;
};

}  // namespace mkernel
