#pragma once

#include <cstdint>
#include <map>

namespace gradwire::servers {

/// Exact distribution of the staleness of applied gradients. Not thread-safe.
class Staleness {
 public:
  void add(std::int64_t staleness, std::int64_t count = 1);
  void add(const Staleness& other);

  std::int64_t count() const { return count_; }
  double mean() const;  ///< 0 if there is none, as the following.
  /// The smallest staleness that at least `share` of the gradients do not exceed.
  std::int64_t quantile(double share) const;
  std::int64_t max() const { return counts_.empty() ? 0 : counts_.rbegin()->first; }
  /// Number of gradients by staleness.
  const std::map<std::int64_t, std::int64_t>& counts() const { return counts_; }

 private:
  std::map<std::int64_t, std::int64_t> counts_;
  std::int64_t count_ = 0;
};

/// How many gradients of a worker came to nothing.
struct Dropped {
  std::int64_t late = 0;      ///< sync: their step was complete.
  std::int64_t repeated = 0;  ///< Sent again after a broken connection.
};

}  // namespace gradwire::servers
