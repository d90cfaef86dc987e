#include "rendezvous/join.h"

#include <algorithm>
#include <chrono>
#include <optional>
#include <thread>
#include <utility>

#include "rendezvous/message.h"
#include "rendezvous/payload.h"
#include "rendezvous/socket.h"
#include "rendezvous/text.h"

namespace mkernel {
namespace {

constexpr int64_t kFirstPauseUs = 10'000;
constexpr int64_t kLongestPauseUs = 250'000;
constexpr int64_t kConnectUs =
    5'000'000;  // an attempt's limit; hosts that drop packets say nothing
// The hub ends the join when the first applicant's time is up, and it alone can say who is missing.
constexpr int64_t kVerdictUs = 3'000'000;

class Joining {
 public:
  Joining(const RendezvousOptions& options, const Identity& identity, int64_t deadline_us)
      : options_(options),
        identity_(identity),
        deadline_us_(deadline_us),
        run_hash_(hash_of_run(options.run_id)) {}

  /// Nothing: no verdict, try again.
  Result<std::optional<Joined>> attempt(OwnedFd fd);
  Result<std::optional<Joined>> attempt_over_network();
  Status too_late() const;

 private:
  Result<bool> prove();
  Result<std::optional<Message>> receive(MessageType wanted, int64_t deadline_us);
  Status refused(const std::string& why) const;

  const RendezvousOptions& options_;
  const Identity& identity_;
  const int64_t deadline_us_;
  const uint64_t run_hash_;
  std::unique_ptr<Connection> connection_;
  std::string why_not_;
};

Result<std::optional<Joined>> Joining::attempt_over_network() {
  Result<HostPort> where = parse_address(options_.address);
  if (!where) return where.status();
  Result<std::vector<SocketAddress>> addresses = resolve(*where);
  if (!addresses) {
    why_not_ = addresses.status().message();
    return std::optional<Joined>();
  }
  Result<OwnedFd> fd = connect_to(*addresses, std::min(deadline_us_, steady_us() + kConnectUs));
  if (fd) return attempt(std::move(*fd));
  why_not_ = fd.status().message();
  return std::optional<Joined>();
}

Result<std::optional<Joined>> Joining::attempt(OwnedFd fd) {
  connection_ = std::make_unique<Connection>(std::move(fd), run_hash_, kMaxApplicantBytes);
  Result<bool> is_admitted = prove();
  if (!is_admitted) return is_admitted.status();
  if (!*is_admitted) return std::optional<Joined>();

  // From here on it is known to be the hub.
  connection_->set_max_payload(kMaxFromHubBytes);
  Result<std::optional<Message>> message =
      receive(MessageType::kWelcome, deadline_us_ + kVerdictUs);
  if (!message) return message.status();
  if (!message->has_value()) return std::optional<Joined>();
  std::optional<Welcome> welcome = Welcome::decode((*message)->payload, options_.world);
  if (!welcome) return refused("its welcome cannot be read");
  return std::optional(Joined{.connection = std::move(connection_),
                              .members = std::move(welcome->members),
                              .silence_limit_us = welcome->silence_limit_us});
}

Result<bool> Joining::prove() {
  const std::string hello = Hello{.rank = options_.rank,
                                  .world = options_.world,
                                  .remaining_us = std::max<int64_t>(deadline_us_ - steady_us(), 1),
                                  .nonce = random_digest(),
                                  .identity = identity_}
                                .encode();
  connection_->queue(MessageType::kHello, hello);
  Result<std::optional<Message>> message = receive(MessageType::kChallenge, deadline_us_);
  if (!message) return message.status();
  if (!message->has_value()) return false;
  const std::optional<Digest> challenge = decode_digest((*message)->payload);
  if (!challenge) return refused("its challenge cannot be read");

  const std::string &secret = options_.secret, &run_id = options_.run_id;
  connection_->queue(MessageType::kProof,
                     encode_digest(proof_of_applicant(secret, run_id, *challenge, hello)));
  message = receive(MessageType::kAdmitted, deadline_us_);
  if (!message) return message.status();
  if (!message->has_value()) return false;
  const std::optional<Digest> proof = decode_digest((*message)->payload);
  if (!proof || !same_digest(*proof, proof_of_hub(secret, run_id, *challenge, hello))) {
    return refused("it does not know the secret of this run");
  }
  return true;
}

Result<std::optional<Message>> Joining::receive(MessageType wanted, int64_t deadline_us) {
  Result<std::optional<Message>> message = connection_->receive_until(deadline_us);
  if (!message) return refused(message.status().message());
  if (!message->has_value()) {
    why_not_ = connection_->is_closed() ? "connected, but " + connection_->why_closed()
                                        : "connected, but there was no answer";
    return message;
  }
  if ((*message)->type == MessageType::kRefuse) {
    std::optional<ErrorPayload> error = decode_error((*message)->payload);
    if (!error) return refused("its refusal cannot be read");
    if (error->status.code() != Code::kInvalidArgument) {
      return Status(error->status.code(), refused(error->status.message()).message());
    }
    return Status(Code::kInvalidArgument, "rank 0 at " + options_.address + " refused rank " +
                                              std::to_string(options_.rank) + ": " +
                                              error->status.message());
  }
  if ((*message)->type != wanted) return refused("its answer came out of turn");
  return message;
}

Status Joining::too_late() const {
  return {Code::kTimeout, "rank " + std::to_string(options_.rank) + " did not reach rank 0 at " +
                              options_.address + " within " + text_of_us(options_.join_timeout_us) +
                              ": " + why_not_};
}

Status Joining::refused(const std::string& why) const {
  const std::string at = options_.address.empty() ? "" : " at " + options_.address;
  return {Code::kInvalidArgument,
          "rank " + std::to_string(options_.rank) + " cannot join rank 0" + at + ": " + why};
}

}  // namespace

Result<Joined> join_hub(const RendezvousOptions& options, const Identity& identity,
                        int64_t deadline_us) {
  Joining joining(options, identity, deadline_us);
  int64_t pause_us = kFirstPauseUs;
  for (;;) {
    Result<std::optional<Joined>> joined = joining.attempt_over_network();
    if (!joined) return joined.status();
    if (joined->has_value()) return std::move(**joined);
    if (steady_us() + pause_us >= deadline_us) break;
    std::this_thread::sleep_for(std::chrono::microseconds(pause_us));
    pause_us = std::min(2 * pause_us, kLongestPauseUs);
  }
  return joining.too_late();
}

Result<Joined> join_own_hub(const RendezvousOptions& options, const Identity& identity,
                            int64_t deadline_us, OwnedFd connected) {
  Joining joining(options, identity, deadline_us);
  Result<std::optional<Joined>> joined = joining.attempt(std::move(connected));
  if (!joined) return joined.status();
  if (joined->has_value()) return std::move(**joined);
  return joining.too_late();
}

}  // namespace mkernel
