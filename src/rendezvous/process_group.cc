#include "rendezvous/process_group.h"

#include <sys/socket.h>

#include <utility>

#include "rendezvous/hub.h"
#include "rendezvous/member.h"
#include "rendezvous/options.h"
#include "rendezvous/text.h"

namespace mkernel {
namespace {

struct OwnHub {
  std::unique_ptr<Hub> hub;
  OwnedFd connection;  // rank 0's
};

/// Rank 0 talks to its hub as all others do, over a pair of sockets.
Result<OwnHub> start_hub(const RendezvousOptions& options, int64_t deadline_us) {
  std::shared_ptr<Listener> listener = options.listener;
  if (!listener) {
    Result<std::shared_ptr<Listener>> opened = Listener::open(options.address, options.bind);
    if (!opened) return opened.status();
    listener = std::move(*opened);
  }
  int pair[2];
  if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0, pair) != 0) {
    return Status(Code::kUnavailable, "socketpair: " + text_of_errno(errno));
  }
  OwnedFd own(pair[0]), hubs(pair[1]);
  Result<std::unique_ptr<Hub>> hub =
      Hub::start(options, std::move(listener), std::move(hubs), deadline_us);
  if (!hub) return hub.status();
  return OwnHub{std::move(*hub), std::move(own)};
}

}  // namespace

Result<std::unique_ptr<ProcessGroup>> ProcessGroup::join(const RendezvousOptions& options) {
  MK_RETURN_IF_ERROR(check_options(options));
  const int64_t deadline_us = steady_us() + options.join_timeout_us;
  Identity identity;
  if (Result<Identity> found = identity_of_this_process()) {
    identity = std::move(*found);
  } else if (options.host_id.empty()) {
    return found.status();
  }
  if (!options.host_id.empty()) identity.host_id = options.host_id;
  if (options.world == 1) {
    return std::unique_ptr<ProcessGroup>(
        new ProcessGroup(std::make_unique<Member>(options, std::move(identity)), nullptr));
  }
  OwnHub own;
  if (options.rank == 0) {
    Result<OwnHub> started = start_hub(options, deadline_us);
    if (!started) return started.status();
    own = std::move(*started);
  }
  Result<Joined> joined =
      own.hub ? join_own_hub(options, identity, deadline_us, std::move(own.connection))
              : join_hub(options, identity, deadline_us);
  if (!joined) return joined.status();
  Result<WakeUp> wake_up = WakeUp::create();
  if (!wake_up) return wake_up.status();
  return std::unique_ptr<ProcessGroup>(
      new ProcessGroup(std::make_unique<Member>(options, std::move(*joined), std::move(*wake_up)),
                       std::move(own.hub)));
}

ProcessGroup::ProcessGroup(std::unique_ptr<Member> member, std::unique_ptr<Hub> hub)
    : hub_(std::move(hub)), member_(std::move(member)) {}

ProcessGroup::~ProcessGroup() { leave(); }

uint32_t ProcessGroup::rank() const { return member_->options().rank; }
uint32_t ProcessGroup::world() const { return member_->options().world; }
const std::string& ProcessGroup::run_id() const { return member_->options().run_id; }

const std::string& ProcessGroup::host_of(uint32_t rank) const {
  return member_->members()[rank].host_id;
}

std::vector<uint32_t> ProcessGroup::ranks_of_this_host() const {
  std::vector<uint32_t> ranks;
  for (uint32_t rank = 0; rank < world(); ++rank) {
    if (host_of(rank) == host_of(this->rank())) ranks.push_back(rank);
  }
  return ranks;
}

std::string ProcessGroup::name_of(uint32_t rank) const {
  return name_of_rank(rank, member_->members()[rank]);
}

Result<std::vector<std::string>> ProcessGroup::all_gather(const std::string& what, std::string mine,
                                                          int64_t timeout_us) {
  return member_->all_gather(what, std::move(mine), timeout_us);
}

Status ProcessGroup::barrier(const std::string& what, int64_t timeout_us) {
  return member_->all_gather(what, "", timeout_us).status();
}

void ProcessGroup::report_fault(const Status& why) { member_->report_fault(why); }

void ProcessGroup::on_fault(std::function<void(const Status&)> tell) {
  member_->on_fault(std::move(tell));
}

Status ProcessGroup::fault() const { return member_->fault(); }

void ProcessGroup::leave() {
  member_->leave();
  hub_.reset();
}

}  // namespace mkernel
