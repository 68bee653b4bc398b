#pragma once

#include <cstdint>
#include <stdexcept>
#include <string>
#include <string_view>
#include <utility>

#include <tl/expected.hpp>

namespace gradwire {

/// Kinds of errors, by what the caller can do about them.
enum class ErrorKind : std::uint8_t {
  invalid_argument,  ///< Invalid call or configuration; nothing was done. Fix it.
  mismatch,          ///< Ranks disagree about an operation. Fix the program.
  disconnected,      ///< A peer is gone. Restart the job, or rebuild the group without it.
  timeout,           ///< A deadline passed. Check the rank or link that the message names.
  refused,           ///< Authentication failed. Give all ranks the same secret.
  corrupted,         ///< Bytes were damaged in transit, or are not gradwire's. Check the link that
                     ///< the message names.
  unsupported,       ///< Not possible here. Choose one of the alternatives that the message names.
  system,            ///< A system call failed. The message has the system's reason.
  aborted,           ///< This side ended the operation: shutdown, or an earlier error of the
                     ///< communicator.
};

/// "disconnected", "timeout", ...
std::string_view name_of(ErrorKind kind);

/// An error as a value, used below the communicator, where no code throws. `message` is a whole
/// sentence for the user: what failed, where, and the remedy.
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

/// Evaluates a Result or Status, and returns its error from the enclosing function if it has one.
#define GRADWIRE_RETURN_IF_ERROR(...)                                   \
  do {                                                                  \
    if (auto gradwire_result = (__VA_ARGS__); !gradwire_result) {       \
      return tl::unexpected<Error>(std::move(gradwire_result).error()); \
    }                                                                   \
  } while (false)

/// Declares a variable with the value of a Result, or returns the error from the enclosing
/// function: GRADWIRE_ASSIGN_OR_RETURN(const auto port, parse_port(text));
#define GRADWIRE_ASSIGN_OR_RETURN(declaration, ...) \
  GRADWIRE_ASSIGN_OR_RETURN_AT(__LINE__, declaration, __VA_ARGS__)
#define GRADWIRE_ASSIGN_OR_RETURN_AT(line, ...) GRADWIRE_ASSIGN_OR_RETURN_TO(line, __VA_ARGS__)
#define GRADWIRE_ASSIGN_OR_RETURN_TO(line, declaration, ...)                 \
  auto gradwire_result_##line = (__VA_ARGS__);                               \
  if (!gradwire_result_##line) {                                             \
    return tl::unexpected<Error>(std::move(gradwire_result_##line).error()); \
  }                                                                          \
  declaration = *std::move(gradwire_result_##line)

/// The only exception class, thrown from Work::wait() upward and by configuration code.
class Exception : public std::runtime_error {
 public:
  explicit Exception(const Error& error) : std::runtime_error(error.message), kind_(error.kind) {}
  Exception(ErrorKind kind, const std::string& message)
      : std::runtime_error(message), kind_(kind) {}

  ErrorKind kind() const noexcept { return kind_; }

 private:
  ErrorKind kind_;
};

/// Returns the value, or throws the error as an Exception: for code above the communicator.
template <class T>
T value_or_throw(Result<T> result) {
  if (!result) throw Exception(result.error());
  if constexpr (!std::is_void_v<T>) return std::move(*result);
}

}  // namespace gradwire
