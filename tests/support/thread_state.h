#pragma once

#include <string>

#include <fmt/format.h>
#include <sys/types.h>

#include "tests/support/temporary_folder.h"

namespace gradwire::test {

/// The state of a thread of this process, the letter of proc(5): R is running, S is sleeping.
inline char thread_state(pid_t thread) {
  const std::string line = content_of(fmt::format("/proc/self/task/{}/stat", thread));
  const std::size_t end_of_name = line.rfind(')');
  return end_of_name + 2 < line.size() ? line[end_of_name + 2] : '?';
}

}  // namespace gradwire::test
