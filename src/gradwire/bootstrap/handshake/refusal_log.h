#pragma once

#include <cstdint>
#include <string>

namespace gradwire::bootstrap {

/// Logs refused connections at warning level; after many, only some of them, so that a flood from
/// unauthenticated peers does not fill a disk.
class RefusalLog {
 public:
  void add(const std::string& reason);

 private:
  std::uint64_t refusals_ = 0;
};

}  // namespace gradwire::bootstrap
