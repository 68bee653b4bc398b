#pragma once

#include <cstdint>
#include <stdexcept>
#include <string>
#include <string_view>
#include <utility>

#include <tl/expected.hpp>

namespace gradwire {

/// Named by what the caller can do about it, not by what broke.
enum class ErrorKind : std::uint8_t {
  invalid_argument,  ///< Fix the call or the configuration; nothing was done.
  mismatch,          ///< Ranks disagree about what they do together: fix the program.
  disconnected,      ///< A peer is gone: restart the job, or rebuild the group without it.
  timeout,           ///< Somebody is late: look at the rank or link that the message names.
  refused,           ///< Authentication failed: give every rank the same secret.
  corrupted,         ///< Bytes changed on the way, or are not ours: look at the link named.
  unsupported,       ///< Not possible here: choose one of the alternatives named.
  system,            ///< The operating system said no: the message has its words.
  aborted,           ///< This side ended it (shutdown, or an earlier error of the communicator).
};

/// "disconnected", "timeout", ...
std::string_view name_of(ErrorKind kind);

/// An error as a value, used below the communicator, where nothing may unwind.
/// `message` is a whole sentence for the user: who, what, and the remedy.
struct Error {
  ErrorKind kind = ErrorKind::system;
  std::string message;
};

template <class T>
using Result = tl::expected<T, Error>;

using Status = Result<void>;

inline tl::unexpected<Error> failure(ErrorKind kind, std::string message) {
  return tl::unexpected<Error>(Error{kind, std::move(message)});
}

/// The one exception class, thrown from Work::wait() upward and by configuration code.
class Exception : public std::runtime_error {
 public:
  explicit Exception(const Error& error) : std::runtime_error(error.message), kind_(error.kind) {}
  Exception(ErrorKind kind, const std::string& message)
      : std::runtime_error(message), kind_(kind) {}

  ErrorKind kind() const noexcept { return kind_; }

 private:
  ErrorKind kind_;
};

/// The value, or the error as an Exception: for code above the communicator.
template <class T>
T value_or_throw(Result<T> result) {
  if (!result) throw Exception(result.error());
  if constexpr (!std::is_void_v<T>) return std::move(*result);
}

}  // namespace gradwire
