#pragma once

#include <optional>
#include <string>

#include "gradwire/base/error.h"
#include "gradwire/base/types.h"

namespace gradwire::engine {

/// A failure, and the rank that it concerns.
struct Failure {
  Error error;
  Rank peer = -1;    ///< The other end of what failed; -1: this rank itself.
  Rank cause = -1;   ///< The rank that this one knows first hand to be the cause; -1: none.
  Rank origin = -1;  ///< The rank that reported it; -1: this one has detected it.
};

/// The state that the parts of an executor share.
struct ExecutorState {
  Time now;
  std::optional<Error> error;  ///< The first error that failed all operations.
  bool leaving = false;        ///< This rank has sent its goodbye.
  std::string failure;         ///< Why it leaves early; "" if it does not.
};

/// Decides what ends with a failure. The parts of an executor report to it.
class FailureHandler {
 public:
  virtual ~FailureHandler() = default;
  virtual void fail(const Failure& failure) = 0;
};

}  // namespace gradwire::engine
