#pragma once

#include <algorithm>

#include "gradwire/emulation/emulated_device.h"

namespace gradwire {

/// A clock that advances when a thread waits.
class TestAlarm final : public Alarm {
 public:
  Time now() const override { return now_; }
  void await(Time time) override { now_ = std::max(now_, time); }

 private:
  Time now_{};
};

}  // namespace gradwire
