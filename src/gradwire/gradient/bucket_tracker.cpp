#include "gradwire/gradient/bucket_tracker.h"

#include "gradwire/gradient/averager_arguments.h"

namespace gradwire {

void BucketTracker::begin(std::size_t bucket, std::size_t pieces) {
  const std::lock_guard lock(mutex_);
  if (error_) throw Exception(*error_);
  check_idle(bucket, missing_[bucket] > 0);
  missing_[bucket] = pieces;
}

void BucketTracker::piece_done(std::size_t bucket) {
  {
    const std::lock_guard lock(mutex_);
    if (--missing_[bucket] > 0) return;
    changed_.notify_all();
  }
  if (finished_) finished_(bucket);
}

void BucketTracker::fail(const Error& error) {
  const std::lock_guard lock(mutex_);
  if (!error_) error_ = error;
  changed_.notify_all();
}

bool BucketTracker::begin_access() {
  const std::lock_guard lock(mutex_);
  if (error_) return false;
  working_ = true;
  return true;
}

void BucketTracker::end_access() {
  const std::lock_guard lock(mutex_);
  working_ = false;
  if (error_) changed_.notify_all();
}

bool BucketTracker::done(std::size_t bucket) const {
  const std::lock_guard lock(mutex_);
  return is_over(bucket);
}

void BucketTracker::wait(std::size_t bucket) {
  std::unique_lock lock(mutex_);
  changed_.wait(lock, [&] { return is_over(bucket); });
  if (missing_[bucket] > 0) throw Exception(*error_);
}

}  // namespace gradwire
