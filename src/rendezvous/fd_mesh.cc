#include "rendezvous/fd_mesh.h"

#include <poll.h>
#include <sys/un.h>

#include <algorithm>
#include <chrono>
#include <thread>
#include <utility>

#include "rendezvous/message.h"
#include "rendezvous/sha256.h"
#include "rendezvous/socket.h"
#include "rendezvous/text.h"
#include "rendezvous/unix_socket.h"
#include "rendezvous/wire.h"

namespace mkernel {
namespace {

constexpr int64_t kLookUs = 50'000;  // how often the group is asked for a fault
constexpr int64_t kPauseUs = 1000;
constexpr int64_t kHelloUs = 1'000'000;  // it is sent before the connection can be accepted
constexpr size_t kMaxNameBytes = 100;

/// What ranks tell each other before they connect. No name: the rank has no socket.
struct Offer {
  std::string name, why_not;
  Digest peers;  // their list, in short

  std::string encode() const {
    WireWriter out;
    out.text(name);
    out.text(why_not);
    out.digest(peers);
    return out.take();
  }
};

std::string encode_round(uint32_t round, bool has_fd) {
  WireWriter out;
  out.number(round);
  out.number(static_cast<uint8_t>(has_fd));
  return out.take();
}

Digest digest_of(const std::vector<uint32_t>& peers) {
  WireWriter out;
  for (const uint32_t peer : peers) out.number(peer);
  return sha256(out.take());
}

Status check_peers(const ProcessGroup& group, const std::vector<uint32_t>& peers) {
  const uint32_t rank = group.rank();
  Status bad(Code::kInvalidArgument,
             text_of_ranks(peers) + " cannot be the peers of rank " + std::to_string(rank) +
                 ": they must be ranks of its host, itself included, ascending");
  if (!std::ranges::binary_search(peers, rank)) return bad;
  for (size_t i = 0; i < peers.size(); ++i) {
    if (i > 0 && peers[i] <= peers[i - 1]) return bad;
    if (peers[i] >= group.world() || group.host_of(peers[i]) != group.host_of(rank)) return bad;
  }
  return Status::ok();
}

/// The names of the peers' sockets, by rank, from what all ranks offered.
Result<std::vector<std::string>> names_of(const ProcessGroup& group,
                                          const std::vector<uint32_t>& peers,
                                          const std::vector<std::string>& offers) {
  std::vector<std::string> names(offers.size());
  for (const uint32_t peer : peers) {
    WireReader in(offers[peer]);
    names[peer] = in.text(kMaxNameBytes);
    const std::string why_not = in.text(1024);
    if (const Digest theirs = in.digest(); in.complete() && !names[peer].empty()) {
      if (same_digest(theirs, digest_of(peers))) continue;
      return Status(Code::kInvalidArgument,
                    group.name_of(peer) + " has other peers than " + group.name_of(group.rank()));
    }
    return Status(Code::kUnavailable, group.name_of(peer) + " can exchange no file descriptors: " +
                                          printable(why_not, 1024));
  }
  return names;
}

}  // namespace

Result<std::unique_ptr<FdMesh>> FdMesh::connect(ProcessGroup& group, std::vector<uint32_t> peers,
                                                int64_t timeout_us) {
  const int64_t deadline_us = steady_us() + timeout_us;
  const Status peers_status = check_peers(group, peers);
  const std::string name = "mkernel-" + std::to_string(hash_of_run(group.run_id())) + "-" +
                           std::to_string(group.rank()) + "-" + hex_of(random_digest()).substr(32);
  Result<OwnedFd> listening = peers_status ? listen_at_name(name) : peers_status;
  // Who cannot take part says so, rather than let the others wait.
  Offer offer{.name = listening ? name : "", .why_not = {}, .peers = digest_of(peers)};
  if (!listening) offer.why_not = listening.status().message().substr(0, 1024);
  Result<std::vector<std::string>> offers =
      group.all_gather("file descriptor mesh", offer.encode(), timeout_us);
  if (!offers) return offers.status();
  if (!listening) return listening.status();
  Result<std::vector<std::string>> names = names_of(group, peers, *offers);
  if (!names) return names.status();
  std::unique_ptr<FdMesh> mesh(new FdMesh(group, std::move(peers)));
  mesh->timeout_us_ = timeout_us;
  MK_RETURN_IF_ERROR(mesh->connect_all(*listening, *names, deadline_us));
  return mesh;
}

/// Each rank connects to those below it, and waits for those above. All listen already.
Status FdMesh::connect_all(const OwnedFd& listening, const std::vector<std::string>& names,
                           int64_t deadline_us) {
  size_t num_above = 0;
  for (size_t i = 0; i < peers_.size(); ++i) {
    if (peers_[i] > group_.rank()) ++num_above;
    if (peers_[i] >= group_.rank()) continue;
    MK_RETURN_IF_ERROR(connect_to_peer(i, names[peers_[i]], deadline_us));
  }
  return accept_peers(listening, num_above, deadline_us);
}

Status FdMesh::connect_to_peer(size_t i, const std::string& name, int64_t deadline_us) {
  for (;;) {
    Result<OwnedFd> fd = connect_to_name(name);
    if (!fd)
      return error(fd.status().code(), group_.name_of(peers_[i]) + ": " + fd.status().message());
    if (*fd) {
      if (!is_of_this_user(fd->get())) {
        return error(Code::kUnavailable, group_.name_of(peers_[i]) + " belongs to another user");
      }
      sockets_[i] = std::move(*fd);
      WireWriter hello;
      hello.number(group_.rank());
      Result<bool> sent = send_with_fd(sockets_[i].get(), hello.take(), -1);
      return sent ? Status::ok() : sent.status();
    }
    MK_RETURN_IF_ERROR(check_time(deadline_us, {peers_[i]}));
    std::this_thread::sleep_for(std::chrono::microseconds(kPauseUs));
  }
}

Status FdMesh::accept_peers(const OwnedFd& listening, size_t num_wanted, int64_t deadline_us) {
  while (num_wanted > 0) {
    std::vector<uint32_t> missing;
    for (size_t i = 0; i < peers_.size(); ++i) {
      if (peers_[i] > group_.rank() && !sockets_[i]) missing.push_back(peers_[i]);
    }
    MK_RETURN_IF_ERROR(check_time(deadline_us, missing));
    Result<bool> ready =
        wait_for(listening.get(), POLLIN, std::min(deadline_us, steady_us() + kLookUs));
    if (!ready) return ready.status();
    Result<Accepted> accepted = accept_one(listening.get());
    if (!accepted) return accepted.status();
    // Others may find the name; only a peer of the same user can say who it is.
    if (!accepted->fd || !is_of_this_user(accepted->fd.get())) continue;
    (void)wait_for(accepted->fd.get(), POLLIN, std::min(deadline_us, steady_us() + kHelloUs));
    WithFd hello;
    Result<bool> came = receive_with_fd(accepted->fd.get(), &hello);
    if (!came || !*came) continue;
    WireReader in(hello.bytes);
    const auto rank = in.number<uint32_t>();
    const auto it = std::ranges::lower_bound(peers_, rank);
    if (!in.complete() || it == peers_.end() || *it != rank || rank <= group_.rank()) continue;
    OwnedFd& socket = sockets_[static_cast<size_t>(it - peers_.begin())];
    if (socket) continue;
    socket = std::move(accepted->fd);
    --num_wanted;
  }
  return Status::ok();
}

Result<std::vector<OwnedFd>> FdMesh::exchange(int mine, int64_t timeout_us) {
  return exchange(std::vector<int>(peers_.size(), mine), timeout_us);
}

Result<std::vector<OwnedFd>> FdMesh::exchange(std::span<const int> mine, int64_t timeout_us) {
  if (mine.size() != peers_.size()) {
    return error(Code::kInvalidArgument, std::to_string(mine.size()) + " file descriptors for " +
                                             std::to_string(peers_.size()) +
                                             " peers: one for each, -1 for none");
  }
  timeout_us_ = timeout_us;
  const int64_t deadline_us = steady_us() + timeout_us;
  std::vector<OwnedFd> theirs(peers_.size());
  std::vector<short> to_do(peers_.size(), POLLIN | POLLOUT);
  for (size_t i = 0; i < peers_.size(); ++i) {
    if (peers_[i] == group_.rank()) to_do[i] = 0;
  }
  for (;;) {
    std::vector<pollfd> polled;
    std::vector<uint32_t> missing;
    for (size_t i = 0; i < peers_.size(); ++i) {
      MK_RETURN_IF_ERROR(serve(i, mine[i], &theirs[i], &to_do[i]));
      if (to_do[i] == 0) continue;
      missing.push_back(peers_[i]);
      polled.push_back({.fd = sockets_[i].get(), .events = to_do[i], .revents = 0});
    }
    if (polled.empty()) break;
    MK_RETURN_IF_ERROR(check_time(deadline_us, missing));
    (void)poll(polled.data(), polled.size(), static_cast<int>(kLookUs / 1000));
  }
  ++round_;
  return theirs;
}

/// Does what can be done now of what is to be done with one peer: POLLOUT, POLLIN.
Status FdMesh::serve(size_t i, int mine, OwnedFd* theirs, short* to_do) {
  if ((*to_do & POLLOUT) != 0) {
    Result<bool> sent = send_to(i, mine);
    if (!sent) return sent.status();
    if (*sent) *to_do = static_cast<short>(*to_do & ~POLLOUT);
  }
  // Only until this round's has come: behind it, the peer's next may wait.
  if ((*to_do & POLLIN) != 0) {
    Result<bool> received = receive_from(i, theirs);
    if (!received) return received.status();
    if (*received) *to_do = static_cast<short>(*to_do & ~POLLIN);
  }
  return Status::ok();
}

Result<bool> FdMesh::send_to(size_t i, int fd) {
  Result<bool> sent = send_with_fd(sockets_[i].get(), encode_round(round_, fd >= 0), fd);
  if (sent) return sent;
  return error(sent.status().code(),
               "to " + group_.name_of(peers_[i]) + ": " + sent.status().message());
}

Result<bool> FdMesh::receive_from(size_t i, OwnedFd* fd) {
  WithFd received;
  Result<bool> came = receive_with_fd(sockets_[i].get(), &received);
  const std::string name = "from " + group_.name_of(peers_[i]) + ": ";
  if (!came) return error(came.status().code(), name + came.status().message());
  if (!*came) return false;
  if (received.bytes.empty()) return error(Code::kPeerFailed, name + "its connection closed");
  if (received.bytes != encode_round(round_, static_cast<bool>(received.fd))) {
    return error(Code::kPeerFailed, name + "a message that is not of exchange " +
                                        std::to_string(round_) + ": it is at another");
  }
  *fd = std::move(received.fd);
  return true;
}

Status FdMesh::check_time(int64_t deadline_us, const std::vector<uint32_t>& missing) const {
  MK_RETURN_IF_ERROR(group_.fault());
  if (steady_us() < deadline_us) return Status::ok();
  const std::string who = missing.size() == 1 ? group_.name_of(missing[0]) : text_of_ranks(missing);
  return error(Code::kTimeout, who + " did not come within " + text_of_us(timeout_us_));
}

Status FdMesh::error(Code code, const std::string& message) const {
  return {code, "file descriptors of rank " + std::to_string(group_.rank()) + ": " + message};
}

}  // namespace mkernel
