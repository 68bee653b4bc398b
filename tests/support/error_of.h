#pragma once

#include <exception>
#include <functional>
#include <string>

namespace gradwire::test {

/// Returns the error message of `action`, or "no error".
inline std::string error_of(const std::function<void()>& action) {
  try {
    action();
  } catch (const std::exception& error) {
    return error.what();
  }
  return "no error";
}

}  // namespace gradwire::test
