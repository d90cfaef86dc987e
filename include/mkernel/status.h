// Status and Result: how every fallible host function of mkernel answers. Nothing throws.
#pragma once
#include <optional>
#include <string>
#include <utility>

namespace mkernel {

enum class Code {
  kOk,
  kInvalidArgument,  // the caller gave something that is not allowed
  kUnsupported,      // right in principle, not by this build or this operator
  kUnavailable,      // this machine lacks it (device, library, link)
  kTimeout,          // a wait reached its limit
  kPeerFailed,       // another rank, or the network, reported a failure
  kInternal,         // a failed system call, or a bug
};

/// Short lower-case name of a code, e.g. "invalid_argument".
const char* code_name(Code code);

/// Outcome of a call. The message says what was given, what is allowed, and who (rank, device).
class [[nodiscard]] Status {
 public:
  Status() = default;
  Status(Code code, std::string message) : code_(code), message_(std::move(message)) {}

  static Status ok() { return {}; }
  bool is_ok() const { return code_ == Code::kOk; }
  explicit operator bool() const { return is_ok(); }
  Code code() const { return code_; }
  const std::string& message() const { return message_; }

  /// "timeout: rank 3 waited for ..." or "ok".
  std::string to_string() const;

 private:
  Code code_ = Code::kOk;
  std::string message_;
};

/// A value, or the Status that says why there is none.
template <class T>
class [[nodiscard]] Result {
 public:
  // NOLINTBEGIN(google-explicit-constructor): `return value;` and `return status;` should do.
  Result(T&& given) : value_(std::move(given)) {}
  Result(const T& given) : value_(given) {}
  Result(Status why) : status_(std::move(why)) {}
  // NOLINTEND(google-explicit-constructor)

  bool is_ok() const { return value_.has_value(); }
  explicit operator bool() const { return is_ok(); }
  const Status& status() const { return status_; }

  /// The value; only where is_ok().
  T& value() & { return *value_; }
  const T& value() const& { return *value_; }
  T&& value() && { return std::move(*value_); }
  T* operator->() { return &*value_; }
  const T* operator->() const { return &*value_; }
  T& operator*() { return *value_; }
  const T& operator*() const { return *value_; }

 private:
  std::optional<T> value_;
  Status status_;
};

}  // namespace mkernel

#define MK_CONCAT_(a, b) a##b
#define MK_CONCAT(a, b) MK_CONCAT_(a, b)

/// Returns the Status of a failed expression from the enclosing function.
#define MK_RETURN_IF_ERROR(expr)                                    \
  do {                                                              \
    if (::mkernel::Status MK_CONCAT(mk_status_, __LINE__) = (expr); \
        !MK_CONCAT(mk_status_, __LINE__))                           \
      return MK_CONCAT(mk_status_, __LINE__);                       \
  } while (false)
