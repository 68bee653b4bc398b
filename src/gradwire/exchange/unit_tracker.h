#pragma once

#include <condition_variable>
#include <cstddef>
#include <functional>
#include <mutex>
#include <optional>
#include <vector>

#include "gradwire/base/error.h"

namespace gradwire::exchange {

/// Tracks the units in flight, shared by an exchange's callers and its worker. Thread-safe; takes
/// no other lock.
class UnitTracker {
 public:
  explicit UnitTracker(std::size_t units) : missing_(units), callbacks_(units) {}

  /// Starts `unit`, which is done after `pieces` calls of piece_done(). Throws Exception:
  /// invalid_argument if the unit is already in flight, or the error passed to fail().
  void begin(std::size_t unit, std::size_t pieces);
  void piece_done(std::size_t unit);

  /// Stops all progress. The first error is kept.
  void fail(const Error& error);

  /// The worker brackets its access to units with begin_access() and end_access(). begin_access()
  /// returns false after fail(); then the worker must not touch any unit.
  bool begin_access();
  void end_access();

  /// Returns true if the unit will not be touched any more.
  bool done(std::size_t unit) const;

  /// Blocks until done(). Throws the error of fail() if pieces are missing.
  void wait(std::size_t unit);

  /// Calls `callback` once the unit is done: at once if it is.
  void on_done(std::size_t unit, std::function<void()> callback);

 private:
  bool is_over(std::size_t unit) const {
    return missing_[unit] == 0 || (error_.has_value() && !working_);
  }
  std::vector<std::function<void()>> take_callbacks();

  mutable std::mutex mutex_;
  std::condition_variable changed_;
  std::vector<std::size_t> missing_;  ///< Pieces, per unit.
  std::vector<std::function<void()>> callbacks_;
  std::optional<Error> error_;
  bool working_ = false;
};

}  // namespace gradwire::exchange
