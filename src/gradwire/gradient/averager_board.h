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

/// Which buckets are under way: what the callers of an averager and its worker tell each other.
/// Thread-safe; takes no other lock.
class AveragerBoard {
 public:
  explicit AveragerBoard(std::size_t buckets) : missing_(buckets) {}

  /// Hears of each bucket whose last piece is done. To be set before the first begin().
  void on_finished(std::function<void(std::size_t bucket)> finished) {
    finished_ = std::move(finished);
  }

  /// `pieces` must be done until the bucket is. Throws Exception: invalid_argument, if the bucket
  /// is under way already; the error of fail(), if there was one.
  void begin(std::size_t bucket, std::size_t pieces);
  void piece_done(std::size_t bucket);

  /// Nothing goes on from here. The first error counts.
  void fail(const Error& error);

  /// The worker is about to touch buckets, and has done so. Not to be entered: false.
  bool enter();
  void leave();

  /// Nobody will touch the bucket any more.
  bool done(std::size_t bucket) const;

  /// Until then. Throws the error of fail(), if pieces are missing then.
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
