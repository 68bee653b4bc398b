#pragma once

#include <cstdint>
#include <string>

namespace gradwire {

/// Warns of each connection that was refused; once there are many, only of some, so that a flood of
/// strangers does not fill a disk.
class RefusalLog {
 public:
  void add(const std::string& reason);

 private:
  std::uint64_t refusals_ = 0;
};

}  // namespace gradwire
