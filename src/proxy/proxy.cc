#include "proxy/proxy.h"

#include <pthread.h>
#include <sys/prctl.h>

#include <algorithm>
#include <array>
#include <ctime>
#include <span>
#include <system_error>
#include <utility>

#include "core/sync.h"

namespace mkernel {
namespace {

std::optional<uint64_t> processor_ns(clockid_t clock) {
  timespec time{};
  if (clock_gettime(clock, &time) != 0) return std::nullopt;
  return static_cast<uint64_t>(time.tv_sec) * 1'000'000'000 + static_cast<uint64_t>(time.tv_nsec);
}

constexpr size_t kMaxBatch = 8;  // commands per post: enough to pay for a doorbell

/// There is one writer, so this needs no atomic addition, which would be a locked one.
void count(uint64_t* counter, uint64_t n = 1) {
  store_relaxed<Scope::kSys>(counter, load_relaxed<Scope::kSys>(counter) + n);
}

std::string describe(const Command& c) {
  return "sending " + std::to_string(c.bytes) + " bytes to rank " + std::to_string(c.dst_rank) +
         ", flag " + std::to_string(c.flag) + ", epoch " + std::to_string(c.epoch);
}

}  // namespace

Proxy::Proxy(ProxyConfig config, std::unique_ptr<CopyChannel> channel)
    : config_(std::move(config)),
      traits_(config_.endpoint->traits()),
      method_(arrival_method(traits_)),
      channel_(std::move(channel)),
      batcher_(config_.num_ranks, static_cast<uint32_t>(config_.queue.capacity())),
      completion_(config_.queue.capacity()),
      dog_{config_.abort,
           &fault_claim_,
           &fault_,
           {config_.limit_ns, config_.limit_ns},
           config_.rank} {}

Result<std::unique_ptr<Proxy>> Proxy::start(ProxyConfig config) {
  MK_RETURN_IF_ERROR(check_arrival(config.endpoint->traits(), kMaxFlags));
  Result<std::unique_ptr<CopyChannel>> channel = config.heap->memory().create_channel();
  if (!channel) return channel.status();
  std::unique_ptr<Proxy> proxy(new Proxy(std::move(config), std::move(*channel)));
  try {
    proxy->thread_ = std::thread([p = proxy.get()] { p->run(); });
  } catch (const std::system_error& e) {
    return Status(Code::kInternal, std::string("no thread for the proxy: ") + e.what());
  }
  return proxy;
}

Proxy::~Proxy() { (void)stop(); }

Status Proxy::stop() {
  store_release<Scope::kSys>(&stop_, 1u);
  if (thread_.joinable()) thread_.join();
  return error();
}

Status Proxy::error() const {
  const std::lock_guard lock(error_mutex_);
  return error_;
}

std::optional<FaultRecord> Proxy::fault() const {
  if (load_acquire<Scope::kSys>(&fault_.tripped) == 0) return std::nullopt;
  return fault_;
}

ProxyStatistics Proxy::statistics() const {
  const auto read = [](uint64_t& counter) { return load_relaxed<Scope::kSys>(&counter); };
  ProxyStatistics& s = statistics_;
  return {.commands = read(s.commands),
          .bytes = read(s.bytes),
          .batches = read(s.batches),
          .partial_batches = read(s.partial_batches),
          .room_waits = read(s.room_waits),
          .retries = config_.endpoint->statistics().retries,
          .arrivals = read(s.arrivals),
          .stale_arrivals = read(s.stale_arrivals)};
}

std::optional<uint64_t> Proxy::cpu_ns() {
  clockid_t clock{};
  if (!thread_.joinable() || pthread_getcpuclockid(thread_.native_handle(), &clock) != 0)
    return std::nullopt;
  return processor_ns(clock);
}

void Proxy::run() {
  progress_ns_ = Watchdog::now_ns();
  uint64_t stopping_ns = 0;
  IdlePolicy idle;
  // Sleeps may end so much later, 50 us if nothing is said. Without it they are only longer.
  (void)prctl(PR_SET_TIMERSLACK, 1UL);
  while (pass() && check_progress()) {
    if (dog_.aborted()) {
      set_error({Code::kPeerFailed, "a failure was reported elsewhere"});
      break;
    }
    if (load_acquire<Scope::kSys>(&stop_) != 0) {
      if (!worked_ && is_drained()) break;
      if (stopping_ns == 0) stopping_ns = Watchdog::now_ns();
      if (Watchdog::now_ns() - stopping_ns > config_.limit_ns) {
        fail(command_at(completion_.completed()), {Code::kTimeout, "not complete when stopped"});
        break;
      }
    }
    rest(idle);
  }
  if (Status closed = config_.endpoint->close(); !closed) fail(std::nullopt, closed);
}

void Proxy::expect_commands() {
  if (expected_.exchange(true, std::memory_order_relaxed)) return;
  { const std::lock_guard lock(sleep_mutex_); }  // it has not looked yet, or sleeps already
  awake_.notify_one();
}

void Proxy::rest(IdlePolicy& idle) {
  const Rest how = idle.after_pass(worked_, in_flight_ > 0);
  if (how == Rest::kYield) std::this_thread::yield();
  if (how != Rest::kSleep) return;
  const auto time = idle.sleep([] { return processor_ns(CLOCK_THREAD_CPUTIME_ID).value_or(0); });
  std::unique_lock lock(sleep_mutex_);
  awake_.wait_for(lock, time, [this] { return expected_.load(std::memory_order_relaxed); });
}

bool Proxy::pass() {
  // Being told of commands is like having met one: it keeps awake for a while.
  worked_ = expected_.load(std::memory_order_relaxed) &&
            expected_.exchange(false, std::memory_order_relaxed);
  return read_commands() && post_batches() && poll_network();
}

bool Proxy::read_commands() {
  // Ends: the queue holds no command beyond those that were not completed yet.
  Command c;
  while (config_.queue.read(next_position_, &c)) {
    if (c.dst_rank >= config_.num_ranks) {
      return fail(c, {Code::kInvalidArgument,
                      "no such rank: there are " + std::to_string(config_.num_ranks)});
    }
    if (c.flag >= kMaxFlags) {  // an immediate would cut it, and name another flag
      return fail(c,
                  {Code::kInvalidArgument, "no such flag: there are " + std::to_string(kMaxFlags)});
    }
    batcher_.add({next_position_++, c});
    completion_.begin(writes_of_chunk(method_, {.bytes = c.bytes}).count);
    worked_ = true;
  }
  return true;
}

bool Proxy::post_batches() {
  while (!batcher_.empty()) {
    const size_t room = (traits_.max_in_flight - in_flight_) / max_writes_per_chunk(method_);
    if (room == 0 && !waits_for_room_) count(&statistics_.room_waits);
    waits_for_room_ = room == 0;
    if (room == 0) return true;
    if (!post_batch(std::min(room, kMaxBatch))) return false;
    worked_ = true;
  }
  return true;
}

bool Proxy::post_batch(size_t limit) {
  std::array<PendingCommand, kMaxBatch> batch;
  const size_t num_commands = batcher_.take(std::span(batch).first(limit));
  std::array<Write, 2 * kMaxBatch> writes;
  size_t num_writes = 0;
  uint64_t num_bytes = 0;
  for (const auto& [position, c] : std::span(batch).first(num_commands)) {
    const ChunkWrites chunk =
        writes_of_chunk(method_, {.peer = c.dst_rank,
                                  .local_address = c.local_address,
                                  .remote_address = c.remote_address,
                                  .bytes = c.bytes,
                                  .flag = c.flag,
                                  .value = c.epoch,
                                  .id = Completion::first_write_id(position)});
    for (uint32_t i = 0; i < chunk.count; ++i) writes[num_writes++] = chunk.writes[i];
    num_bytes += c.bytes;
  }
  const Status posted = config_.endpoint->post(std::span(writes).first(num_writes));
  if (!posted) return fail(batch.front().command, posted);
  if (in_flight_ == 0) progress_ns_ = Watchdog::now_ns();
  in_flight_ += static_cast<uint32_t>(num_writes);
  count(&statistics_.commands, num_commands);
  count(&statistics_.bytes, num_bytes);
  count(&statistics_.batches);
  if (num_commands < limit) count(&statistics_.partial_batches);
  return true;
}

bool Proxy::poll_network() {
  Result<size_t> num_events = config_.endpoint->poll(events_);
  if (!num_events) return fail(std::nullopt, num_events.status());
  const uint64_t completed_before = completion_.completed();
  const uint32_t in_flight_before = in_flight_;
  for (size_t i = 0; i < *num_events; ++i) {
    if (!handle(events_[i])) return false;
  }
  if (in_flight_ != in_flight_before) progress_ns_ = Watchdog::now_ns();
  if (completion_.completed() != completed_before) config_.queue.complete(completion_.completed());
  worked_ |= *num_events > 0;
  return true;
}

bool Proxy::handle(const Event& event) {
  if (event.kind == Event::Kind::kArrived) return raise_flag(event.value);
  const uint64_t position = Completion::position_of(event.id);
  if (event.kind == Event::Kind::kFailed) {
    const std::string why = config_.endpoint->last_error();
    return fail(command_at(position),
                {Code::kPeerFailed,
                 "the network reported that the write failed" + (why.empty() ? why : ": " + why)});
  }
  if (!completion_.complete(event.id)) {
    return fail(command_at(position),
                {Code::kInternal, "the network completed a write that was not in flight"});
  }
  --in_flight_;
  return true;
}

bool Proxy::raise_flag(uint32_t value) {
  const Immediate immediate = decode_immediate(value);
  uint32_t* const shadow = config_.heap->flag_shadow() + immediate.flag;
  const ResolvedEpoch resolved =
      resolve_epoch(load_relaxed<Scope::kSys>(shadow), immediate.epoch_bits);
  if (resolved.stale) {
    count(&statistics_.stale_arrivals);
    return true;
  }
  store_relaxed<Scope::kSys>(shadow, resolved.epoch);
  const Status stored = channel_->store_flag(config_.heap->flag(immediate.flag), resolved.epoch);
  if (!stored) return fail(std::nullopt, stored);
  count(&statistics_.arrivals);
  return true;
}

bool Proxy::check_progress() {
  if (in_flight_ == 0 || Watchdog::now_ns() - progress_ns_ <= config_.limit_ns) return true;
  return fail(command_at(completion_.completed()),
              {Code::kTimeout, "no completion for " + std::to_string(config_.limit_ns / 1000) +
                                   " us (timeout_us)"});
}

bool Proxy::is_drained() { return completion_.idle() && !command_at(next_position_); }

std::optional<Command> Proxy::command_at(uint64_t position) const {
  Command c;
  if (!config_.queue.read(position, &c)) return std::nullopt;
  return c;
}

bool Proxy::fail(const std::optional<Command>& c, const Status& status) {
  set_error({status.code(), (c ? describe(*c) + ": " : "") + status.message()});
  const WaitSite site{Place::kTransport, c ? c->dst_rank : config_.rank, c ? c->flag : 0};
  dog_.trip(site, c ? c->epoch : 0, 0);
  return false;
}

void Proxy::set_error(const Status& status) {
  const std::lock_guard lock(error_mutex_);
  if (!error_) return;  // the first one is the cause
  error_ = {status.code(), "rank " + std::to_string(config_.rank) + ": " + status.message()};
}

}  // namespace mkernel
