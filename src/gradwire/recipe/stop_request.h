#pragma once

#include <cstdint>
#include <exception>
#include <filesystem>
#include <functional>
#include <string>
#include <utility>

#include "gradwire/base/clock.h"
#include "gradwire/host/group.h"

namespace gradwire::recipe {

/// Catches SIGTERM and SIGUSR1, by which schedulers announce that they will take the machine
/// (Slurm's --signal=USR1@60), while it lives. One object per process.
class StopSignals {
 public:
  StopSignals();
  ~StopSignals();
  StopSignals(const StopSignals&) = delete;
  StopSignals& operator=(const StopSignals&) = delete;

  /// The first signal that has arrived; 0: none.
  static int received();
};

/// Makes all ranks stop after the same step, whichever of them got the signal. Not thread-safe.
class StopAgreement {
 public:
  /// `received` returns the signal that this rank has got, or 0.
  StopAgreement(ProcessGroup group, const Clock& clock, std::function<int()> received)
      : group_(std::move(group)), clock_(clock), received_(std::move(received)) {}

  /// Called after each step, on all ranks. Returns the signal to stop on, the same on all ranks; 0:
  /// go on. Ranks ask each other about once a second, so that steps do not become slower.
  int after_step();

 private:
  std::int64_t steps_until_next(Time now);

  ProcessGroup group_;
  const Clock& clock_;
  std::function<int()> received_;
  std::int64_t steps_ = 0;  ///< Since the ranks asked last.
  std::int64_t until_ = 1;  ///< Steps in between; the same on all ranks.
  Time asked_ = {};
};

/// Thrown by train() on all ranks when the run has stopped on a signal.
class Stopped : public std::exception {
 public:
  /// `first`: this rank is the first that is not lost, and tells the user.
  Stopped(int signal, std::int64_t steps, std::filesystem::path checkpoint, bool first);

  int signal() const { return signal_; }
  bool first() const { return first_; }
  const char* what() const noexcept override { return text_.c_str(); }

 private:
  int signal_;
  bool first_;
  std::string text_;
};

}  // namespace gradwire::recipe
