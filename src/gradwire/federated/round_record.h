#pragma once

#include <cstdint>
#include <string>

#include "gradwire/base/types.h"

namespace gradwire::federated {

/// A round in numbers.
struct RoundRecord {
  std::int64_t number = 0;
  int checked_in = 0;
  int asked = 0;
  int ready = 0;
  int used = 0;     ///< Whose updates are in the sum.
  int stopped = 0;  ///< Told to stop, for enough others were ready.
  int dropped = 0;  ///< Asked, neither used nor stopped: lost, too late or refused.
  bool is_abandoned = false;
  std::string reason;  ///< Why it was abandoned.
  Time began{}, ended{};
};

}  // namespace gradwire::federated
