#pragma once

#include <condition_variable>
#include <cstddef>
#include <functional>
#include <mutex>
#include <optional>
#include <utility>
#include <vector>

#include "gradwire/base/error.h"

namespace gradwire {

/// Tracks the buckets in flight, shared by an averager's callers and its worker. Thread-safe; takes
/// no other lock.
class BucketTracker {
 public:
  explicit BucketTracker(std::size_t buckets) : missing_(buckets) {}

  /// Calls `finished` for each bucket whose last piece is done. Called before the first begin().
  void on_finished(std::function<void(std::size_t bucket)> finished) {
    finished_ = std::move(finished);
  }

  /// Starts `bucket`, which is done after `pieces` calls of piece_done(). Throws Exception:
  /// invalid_argument if the bucket is already in flight, or the error passed to fail().
  void begin(std::size_t bucket, std::size_t pieces);
  void piece_done(std::size_t bucket);

  /// Stops all progress. The first error is kept.
  void fail(const Error& error);

  /// The worker brackets its access to buckets with begin_access() and end_access(). begin_access()
  /// returns false after fail(); then the worker must not touch any bucket.
  bool begin_access();
  void end_access();

  /// Returns true if the bucket will not be touched any more.
  bool done(std::size_t bucket) const;

  /// Blocks until done(). Throws the error of fail() if pieces are missing.
  void wait(std::size_t bucket);

 private:
  bool is_over(std::size_t bucket) const {
    return missing_[bucket] == 0 || (error_.has_value() && !working_);
  }

  mutable std::mutex mutex_;
  std::condition_variable changed_;
  std::vector<std::size_t> missing_;  ///< Pieces, per bucket.
  std::optional<Error> error_;
  bool working_ = false;
  std::function<void(std::size_t bucket)> finished_;
};

}  // namespace gradwire
