// A stream of messages over one connection, for a thread that serves it with poll().
// Not thread safe.
#pragma once
#include <cstddef>
#include <cstdint>
#include <deque>
#include <memory>
#include <optional>
#include <string>

#include <mkernel/status.h>

#include "rendezvous/message.h"
#include "rendezvous/owned_fd.h"

namespace mkernel {

/// An encoded message; shared, because what goes to all need not be there once per rank.
using Frame = std::shared_ptr<const std::string>;

class Connection {
 public:
  /// fd: connected and nonblocking. max_payload_bytes: of a message from the other side.
  Connection(OwnedFd fd, uint64_t run_hash, size_t max_payload_bytes)
      : fd_(std::move(fd)), run_hash_(run_hash), reader_(run_hash, max_payload_bytes) {}

  int fd() const { return fd_.get(); }
  void set_max_payload(size_t bytes) { reader_.set_max_payload(bytes); }

  /// To be sent by later calls of flush().
  void queue(MessageType type, std::string_view payload);
  void queue(Frame frame) { outbox_.push_back(std::move(frame)); }
  bool wants_to_send() const { return !outbox_.empty(); }

  /// Sends as much as the system takes now. A broken connection shows in fill().
  void flush();

  /// Reads some of what has come. False: nothing more will, and why_closed() says why.
  bool fill();
  /// Reads what has come and throws it away. False as for fill().
  bool drain();
  const std::string& why_closed() const { return why_closed_; }

  /// The next message that is complete, if any. After an error the stream is lost.
  Result<std::optional<Message>> next() { return reader_.next(); }

  /// Nothing more will be sent; the other side sees the end of the stream.
  void end_sending();

  /// For those who serve nothing else: waits until a message is there. Sends meanwhile.
  /// Returns:  nothing if the deadline passed or the connection closed (then is_closed()).
  Result<std::optional<Message>> receive_until(int64_t deadline_us);
  bool is_closed() const { return !why_closed_.empty(); }

 private:
  bool read_into(char* buffer, size_t size, size_t* count);

  OwnedFd fd_;
  uint64_t run_hash_;
  MessageReader reader_;
  std::deque<Frame> outbox_;
  size_t num_sent_ = 0;  // bytes of the first frame
  std::string why_closed_;
};

}  // namespace mkernel
