// Who may join a group: the hub's side of joining, without sockets and clocks. An applicant is
// taken through hello, challenge and proof; the desk keeps the list of those who have come. Not
// thread safe.
#pragma once
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include <mkernel/status.h>

#include "rendezvous/identity.h"
#include "rendezvous/message.h"
#include "rendezvous/payload.h"

namespace mkernel {

class JoinDesk {
 public:
  JoinDesk(uint32_t world, std::string run_id, std::string secret)
      : run_id_(std::move(run_id)), secret_(std::move(secret)), members_(world) {}

  const std::string& run_id() const { return run_id_; }
  const std::string& secret() const { return secret_; }
  uint32_t world() const { return static_cast<uint32_t>(members_.size()); }

  /// Writes the rank into the list. is_local: it is the process that the hub lives in.
  /// Errors:  invalid_argument if its world is another, or its rank is none of it or there already.
  Status admit(const Hello& hello, bool is_local);
  /// The rank went away before the group was complete, and may come again.
  void remove(uint32_t rank);

  bool is_complete() const { return num_members_ == members_.size(); }
  std::vector<uint32_t> missing() const;
  /// "rank 3 (host h, pid 17)", or "rank 3" while it is not there.
  std::string name_of(uint32_t rank) const;
  /// All members; only when it is complete.
  std::vector<Identity> members() const;

 private:
  std::string run_id_, secret_;
  std::vector<std::optional<Identity>> members_;  // by rank
  size_t num_members_ = 0;
};

/// One connection on its way to become a member.
class Applicant {
 public:
  Applicant(JoinDesk* desk, const Digest& challenge, bool is_local)
      : desk_(desk), challenge_(challenge), is_local_(is_local) {}

  /// Takes its next message, and gives the answer, if there is one to be sent.
  /// Errors:  invalid_argument if it is to be refused, and why.
  Result<std::optional<Message>> take(const Message& message);

  bool is_local() const { return is_local_; }
  bool is_admitted() const { return state_ == State::kAdmitted; }
  /// What it said of itself; only if is_admitted().
  const Hello& hello() const { return hello_; }

 private:
  enum class State : uint8_t { kHello, kProof, kAdmitted };

  JoinDesk* desk_;
  Digest challenge_;
  bool is_local_;
  State state_ = State::kHello;
  Hello hello_;
  std::string hello_bytes_;
};

}  // namespace mkernel
