#pragma once

#include "gradwire/base/types.h"

namespace gradwire {

/// Where time comes from. A constructor argument wherever time matters, so that a test can own it.
/// Implementations must be callable from any thread.
class Clock {
 public:
  virtual ~Clock() = default;
  virtual Time now() const = 0;
};

/// The machine's monotonic clock.
class SteadyClock final : public Clock {
 public:
  Time now() const override;
};

/// This host's time of day, since the beginning of 1970 (UTC): to compare the clocks of hosts,
/// never to measure how long something takes.
Duration time_of_day();

}  // namespace gradwire
