#include "transport/fake_world.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <utility>

#include "core/sync.h"

namespace mkernel::test {
namespace {

constexpr const char* kRetryExceeded = "transport retry counter exceeded";
constexpr const char* kRnrExceeded = "RNR retry counter exceeded";
constexpr const char* kRemoteAccess = "remote access error";
constexpr const char* kLocalProtection = "local protection error";
constexpr const char* kFlushed = "Work Request Flushed Error";
constexpr uint32_t kRnrForEver = 7;

}  // namespace

void FakeWorld::violate(const std::string& what) {
  violations.push_back(what);
  if (config.fails_tests) ADD_FAILURE() << "fake verbs: " << what;
}

verbs::Gid FakeWorld::gid(uint32_t rank, size_t device_idx, uint32_t index) const {
  const FakeDevice& d = device(device_idx);
  if (index < d.gids.size() && d.gids[index]) return d.gids[index]->gid;
  verbs::Gid gid{};  // ::ffff:10.rank.rank.device
  gid[10] = gid[11] = 0xff;
  gid[12] = 10;
  gid[13] = static_cast<uint8_t>(rank >> 8);
  gid[14] = static_cast<uint8_t>(rank);
  gid[15] = static_cast<uint8_t>(device_idx + 1);
  return gid;
}

// --- Posting and polling ---

void FakeWorld::check_request(const FakePair& pair, const verbs::SendRequest& request) {
  const bool is_datagram = pair.config.service == verbs::Service::kDatagram;
  if (is_datagram && !request.signaled) violate("an SRD request that is not signaled");
  if (is_datagram && request.handle == nullptr) violate("an SRD request without a handle");
  if (request.is_inline && request.bytes > pair.inline_bytes) {
    violate("an inline request of " + std::to_string(request.bytes) + " bytes");
  }
  if (request.bytes > device(pair.device_idx).max_message_bytes) {
    violate("a request of " + std::to_string(request.bytes) + " bytes");
  }
}

Status FakeWorld::post(FakePair& pair, std::span<const verbs::SendRequest> requests) {
  if (pair.state == FakePair::State::kInit) {
    return {Code::kInternal, "fake post_send: queue pair is not connected"};
  }
  if (pair.poster == std::thread::id()) pair.poster = std::this_thread::get_id();
  if (pair.poster != std::this_thread::get_id()) violate("a second thread posts to a queue pair");
  ++num_doorbells;
  for (const verbs::SendRequest& request : requests) {
    check_request(pair, request);
    if (pair.occupied.size() >= pair.config.send_depth) {
      violate("more requests than a queue pair of depth " + std::to_string(pair.config.send_depth));
      return {Code::kInternal, "fake post_send: Cannot allocate memory"};
    }
    pair.occupied.push_back(request.id);
    FakePosted posted{.request = request, .inline_bytes = {}, .pieces = {}};
    const auto failing_it = failing.find(num_requests++);
    if (failing_it != failing.end()) posted.injected = failing_it->second;
    num_signaled += request.signaled ? 1 : 0;
    if (request.is_inline) {
      const char* bytes = reinterpret_cast<const char*>(request.local_address);
      posted.inline_bytes.assign(bytes, bytes + request.bytes);
    }
    // Pieces in a drawn order; four bytes are placed at once.
    const uint64_t cut = request.bytes > 4 ? random() % request.bytes : 0;
    posted.pieces.push_back({cut, request.bytes});
    if (cut > 0) posted.pieces.push_back({0, cut});
    pair.posted.push_back(std::move(posted));
  }
  if (pair.state == FakePair::State::kError) flush(pair);
  return Status::ok();
}

size_t FakeWorld::poll(FakeQueue& queue, std::span<verbs::Completion> completions) {
  size_t count = 0;
  for (; count < completions.size() && !queue.entries.empty(); ++count) {
    const auto [completion, number] = queue.entries.front();
    queue.entries.pop_front();
    completions[count] = completion;
    const auto it = pairs.find(number);
    if (it == pairs.end() || &queue != it->second->sends) continue;
    // The send queue gets its places back only now: on RC with all that came before.
    std::deque<uint64_t>& occupied = it->second->occupied;
    const auto id = std::ranges::find(occupied, completion.id);
    if (id == occupied.end()) continue;
    const bool in_order = it->second->config.service == verbs::Service::kConnected;
    occupied.erase(in_order ? occupied.begin() : id, id + 1);
  }
  return count;
}

// --- Movement ---

void FakeWorld::move(uint32_t rank, size_t device_idx) {
  if (dead.contains(rank) || held.contains(device(device_idx).name)) return;
  for (const auto& [number, pair] : pairs) {
    if (pair->rank != rank || pair->device_idx != device_idx) continue;
    if (pair->config.service == verbs::Service::kConnected) {
      move_in_order(*pair);
    } else {
      move_in_any_order(*pair);
    }
  }
  deliver_late();
}

void FakeWorld::move_in_order(FakePair& pair) {
  for (uint64_t steps = random() % (2 * pair.posted.size() + 1); steps > 0; --steps) {
    if (pair.posted.empty()) return;
    if (step(pair, pair.posted.front())) pair.posted.pop_front();
    if (pair.state == FakePair::State::kError) return flush(pair);
  }
}

void FakeWorld::move_in_any_order(FakePair& pair) {
  for (uint64_t steps = random() % (2 * pair.posted.size() + 1); steps > 0; --steps) {
    if (pair.posted.empty()) return;
    const auto i = static_cast<std::ptrdiff_t>(random() % pair.posted.size());
    if (step(pair, pair.posted[static_cast<size_t>(i)])) {
      pair.posted.erase(pair.posted.begin() + i);
    }
  }
}

bool FakeWorld::step(FakePair& pair, FakePosted& posted) {
  const verbs::SendRequest& request = posted.request;
  if (posted.injected != nullptr) return fail(pair, request, posted.injected);
  FakePair* const target = target_of(pair, posted);
  if (target == nullptr) return fail(pair, request, kRetryExceeded);
  if (!request.is_inline && !is_inside(request.lkey, pair.rank, pair.device_idx,
                                       request.local_address, request.bytes, false)) {
    return fail(pair, request, kLocalProtection);
  }
  if (!is_inside(request.rkey, target->rank, target->device_idx, request.remote_address,
                 request.bytes, true)) {
    return fail(pair, request, kRemoteAccess);
  }
  if (!posted.pieces.empty()) {
    const size_t i = random() % posted.pieces.size();
    place(posted, posted.pieces[i]);
    posted.pieces.erase(posted.pieces.begin() + static_cast<std::ptrdiff_t>(i));
    if (!posted.pieces.empty()) return false;
  }
  if (request.immediate && !posted.told) {
    posted.told = tell(pair, *target, posted);
    if (!posted.told) {
      const uint32_t limit = pair.connection.rnr_retry;
      if (limit == kRnrForEver || ++posted.rnr_tries <= limit) return false;
      return fail(pair, request, kRnrExceeded);
    }
  }
  // Over SRD the receiver may know long before the sender.
  if (pair.config.service == verbs::Service::kDatagram && random() % 4 == 0) return false;
  complete(pair, request, nullptr);
  return true;
}

FakePair* FakeWorld::target_of(const FakePair& pair, const FakePosted& posted) const {
  const bool is_datagram = pair.config.service == verbs::Service::kDatagram;
  const uint32_t number =
      is_datagram ? posted.request.remote_number : pair.connection.remote_number;
  const auto it = pairs.find(number);
  if (it == pairs.end() || dead.contains(it->second->rank)) return nullptr;
  FakePair& target = *it->second;
  if (target.state != FakePair::State::kReady) return nullptr;
  const FakeDevice& d = device(target.device_idx);
  if (is_datagram) {
    const auto& handle = static_cast<const FakeHandle&>(*posted.request.handle);
    if (handle.gid() != gid(target.rank, target.device_idx, 0)) return nullptr;
    if (posted.request.remote_qkey != target.config.qkey) return nullptr;
  } else if (target.connection.remote_number != pair.number ||
             target.connection.remote_sequence != pair.connection.sequence ||
             target.connection.mtu_bytes != pair.connection.mtu_bytes) {
    return nullptr;
  }
  if (!is_datagram && pair.connection.is_global &&
      pair.connection.remote_gid !=
          gid(target.rank, target.device_idx, target.connection.gid_index)) {
    return nullptr;
  }
  if (!is_datagram && !pair.connection.is_global &&
      (d.link_layer != verbs::LinkLayer::kInfiniband ||
       pair.connection.remote_lid != target.rank * 16 + target.device_idx + 1)) {
    return nullptr;
  }
  return &target;
}

bool FakeWorld::is_inside(uint32_t key, uint32_t rank, size_t device_idx, uint64_t address,
                          uint64_t bytes, bool remote) const {
  const auto it = registrations.find(key);
  if (it == registrations.end()) return false;
  const FakeRegistration& r = it->second;
  return r.rank == rank && r.device == device(device_idx).name && address >= r.address &&
         bytes <= r.bytes && address - r.address <= r.bytes - bytes &&
         (!remote || r.access.remote_write);
}

void FakeWorld::place(const FakePosted& posted, const FakePosted::Piece& piece) {
  const verbs::SendRequest& request = posted.request;
  const char* source = request.is_inline ? posted.inline_bytes.data()
                                         : reinterpret_cast<const char*>(request.local_address);
  char* target = reinterpret_cast<char*>(request.remote_address);
  if (request.bytes == sizeof(uint32_t)) {  // somebody may be watching it: a flag
    uint32_t word = 0;
    std::memcpy(&word, source, sizeof word);
    return store_release<Scope::kSys>(reinterpret_cast<uint32_t*>(target), word);
  }
  std::memcpy(target + piece.begin, source + piece.begin, piece.end - piece.begin);
}

// --- Completions ---

bool FakeWorld::tell(FakePair& sender, FakePair& receiver, FakePosted& posted) {
  if (receiver.ready.empty()) return false;
  const auto made =
      handles.find({receiver.rank, receiver.device_idx, gid(sender.rank, sender.device_idx, 0)});
  const verbs::Completion completion{.id = receiver.ready.front().id,
                                     .immediate = posted.request.immediate,
                                     .source_handle = made == handles.end() ? 0xffff : made->second,
                                     .source_number = sender.number};
  receiver.ready.pop_front();
  const bool is_datagram = sender.config.service == verbs::Service::kDatagram;
  if (is_datagram && config.late_immediates && random() % 8 == 0) {
    late.push_back({&receiver, completion});
  } else {
    deliver(receiver, completion);
  }
  if (is_datagram && config.repeats_immediates && random() % 4 == 0 && !receiver.ready.empty()) {
    verbs::Completion again = completion;
    again.id = receiver.ready.front().id;
    receiver.ready.pop_front();
    late.push_back({&receiver, again});
  }
  return true;
}

void FakeWorld::deliver(FakePair& receiver, const verbs::Completion& completion) {
  receiver.receives->entries.push_back({completion, receiver.number});
  if (receiver.receives->entries.size() > receiver.receives->depth) {
    violate("an overrun completion queue of receives");
  }
}

void FakeWorld::deliver_late() {
  for (size_t i = late.size(); i-- > 0;) {
    if (random() % 16 != 0) continue;
    const Late now = late[i];
    late.erase(late.begin() + static_cast<std::ptrdiff_t>(i));
    deliver(*now.receiver, now.completion);
  }
}

void FakeWorld::complete(FakePair& pair, const verbs::SendRequest& request, const char* error) {
  if (error == nullptr && !request.signaled) return;
  verbs::Completion completion{.id = request.id};
  if (error != nullptr) {
    completion.outcome = error == kFlushed ? verbs::Completion::Outcome::kFlushed
                                           : verbs::Completion::Outcome::kError;
    completion.error = error;
  }
  pair.sends->entries.push_back({completion, pair.number});
  if (pair.sends->entries.size() > pair.sends->depth) {
    violate("an overrun completion queue of sends");
  }
}

/// The request has ended. A failed one of RC breaks its queue pair, one of SRD only itself.
bool FakeWorld::fail(FakePair& pair, const verbs::SendRequest& request, const char* error) {
  complete(pair, request, error);
  if (pair.config.service == verbs::Service::kConnected) pair.state = FakePair::State::kError;
  return true;
}

void FakeWorld::flush(FakePair& pair) {
  for (const FakePosted& posted : pair.posted) complete(pair, posted.request, kFlushed);
  pair.posted.clear();
  for (const verbs::ReceiveRequest& receive : pair.ready) {
    deliver(pair,
            {.id = receive.id, .outcome = verbs::Completion::Outcome::kFlushed, .error = kFlushed});
  }
  pair.ready.clear();
}

}  // namespace mkernel::test
