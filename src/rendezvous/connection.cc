#include "rendezvous/connection.h"

#include <poll.h>
#include <sys/socket.h>

#include <algorithm>
#include <array>
#include <cerrno>

#include "rendezvous/socket.h"
#include "rendezvous/text.h"

namespace mkernel {
namespace {

constexpr size_t kReadBytes = 64 << 10;

}  // namespace

void Connection::queue(MessageType type, std::string_view payload) {
  queue(std::make_shared<const std::string>(encode_message(type, run_hash_, payload)));
}

void Connection::flush() {
  while (!outbox_.empty()) {
    const std::string& frame = *outbox_.front();
    const ssize_t count =
        send(fd_.get(), frame.data() + num_sent_, frame.size() - num_sent_, MSG_NOSIGNAL);
    if (count < 0 && errno == EINTR) continue;
    if (count < 0 && (errno == EAGAIN || errno == EWOULDBLOCK)) return;
    if (count < 0) {
      // What the other side said before it went may still be there to be read.
      outbox_.clear();
      num_sent_ = 0;
      return;
    }
    num_sent_ += static_cast<size_t>(count);
    if (num_sent_ < frame.size()) continue;
    outbox_.pop_front();
    num_sent_ = 0;
  }
}

bool Connection::read_into(char* buffer, size_t size, size_t* count) {
  *count = 0;
  if (is_closed()) return false;
  for (;;) {
    const ssize_t received = recv(fd_.get(), buffer, size, 0);
    if (received > 0) {
      *count = static_cast<size_t>(received);
      return true;
    }
    if (received < 0 && errno == EINTR) continue;
    if (received < 0 && (errno == EAGAIN || errno == EWOULDBLOCK)) return true;
    // Which of the two it is depends on what was under way, and says nothing about why.
    const bool has_closed = received == 0 || errno == ECONNRESET;
    why_closed_ = has_closed ? "its connection closed" : text_of_errno(errno);
    return false;
  }
}

bool Connection::fill() {
  std::array<char, kReadBytes> bytes;
  const size_t room = std::min(bytes.size(), reader_.room());
  if (room == 0) return !is_closed();  // a whole message is there, to be taken first
  size_t count = 0;
  const bool open = read_into(bytes.data(), room, &count);
  reader_.append({bytes.data(), count});
  return open;
}

bool Connection::drain() {
  std::array<char, 4096> bytes;
  size_t count = 0;
  return read_into(bytes.data(), bytes.size(), &count);
}

void Connection::end_sending() { (void)shutdown(fd_.get(), SHUT_WR); }

Result<std::optional<Message>> Connection::receive_until(int64_t deadline_us) {
  for (;;) {
    Result<std::optional<Message>> message = next();
    if (!message || message->has_value() || is_closed()) return message;
    flush();
    const short events = static_cast<short>(wants_to_send() ? POLLIN | POLLOUT : POLLIN);
    Result<bool> ready = wait_for(fd(), events, deadline_us);
    if (!ready) return ready.status();
    if (!*ready) return std::optional<Message>();
    (void)fill();
  }
}

}  // namespace mkernel
