#pragma once

#include <string>
#include <utility>

#include <fmt/format.h>

#include "gradwire/base/error.h"

namespace gradwire {

/// Throws Exception(invalid_argument): a request of the caller, a command line or a file is
/// invalid, and nothing was done. `message` as Error::message.
[[noreturn]] inline void refuse(const std::string& message) {
  throw Exception(ErrorKind::invalid_argument, message);
}

/// The same, with the message formatted as by fmt::format().
template <class... Args>
[[noreturn]] void refuse(fmt::format_string<Args...> text, Args&&... args) {
  refuse(fmt::format(text, std::forward<Args>(args)...));
}

}  // namespace gradwire
