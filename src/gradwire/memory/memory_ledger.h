#pragma once

#include <cstddef>
#include <cstdint>
#include <mutex>
#include <vector>

#include "gradwire/base/clock.h"
#include "gradwire/report/run_record.h"
#include "gradwire/trace/memory_timeline.h"

namespace gradwire {

/// One allocation in a ledger. Stored beside the memory, so that counting does not allocate.
struct MemoryBlock {
  std::int64_t bytes = 0;
  std::uint64_t serial = 0;      ///< Later blocks have greater numbers.
  MemoryBlock* older = nullptr;  ///< Among blocks in use.
  MemoryBlock* newer = nullptr;
  std::uint32_t scope = 0;  ///< KeptMemoryScope of the allocation; 0: none.
  MemoryCategory category = MemoryCategory::other;
};

/// Exact memory in use by category: current, at the peak so far, and over time. The number of
/// samples is bounded, and they cover the whole run. A sample is taken by each call of sample(),
/// and when the total has changed by 1/64 of the peak since the last sample. When the bound is
/// reached, samples are thinned to half; each interval keeps its maximum. Thread-safe.
class MemoryLedger {
 public:
  static constexpr std::size_t kSamples = 1 << 14;

  /// `clock` must outlive its use. `samples`: maximum number kept, at least 2.
  explicit MemoryLedger(const Clock& clock, std::size_t samples = kSamples);

  /// `block` must not move until it is removed.
  void add(MemoryBlock& block, std::int64_t bytes, MemoryCategory category, std::uint32_t scope);
  void remove(MemoryBlock& block);
  void relabel(MemoryBlock& block, MemoryCategory category);

  /// Returns the number of the next block.
  std::uint64_t next_serial() const;
  /// Moves blocks allocated in `scope`, from number `from` on and still in use, to `category`.
  void relabel_scope(std::uint32_t scope, std::uint64_t from, MemoryCategory category);

  /// Takes a sample, labeled with `step`.
  void sample(std::int64_t step);
  /// Stops sampling; the clock may then be destroyed.
  void stop_sampling();

  MemoryBytes bytes() const;
  report::MemoryPeak peak() const;
  /// Time zero of the timeline.
  Time begin() const { return begin_; }
  /// Returns the samples, including the moment of the peak.
  MemoryTimeline timeline() const;

 private:
  MemorySample now_locked() const;
  void changed(MemoryCategory category);
  void keep(const MemorySample& sample);

  const Clock* clock_;
  const std::size_t max_samples_;
  const Time begin_;

  mutable std::mutex mutex_;
  std::uint64_t serial_ = 0;
  MemoryBlock* newest_ = nullptr;
  MemoryBytes bytes_{};
  std::int64_t total_ = 0;
  MemorySample peak_;  ///< All categories at the moment of the maximum total.
  std::int64_t peak_total_ = 0;
  MemoryBytes max_of_each_{};
  std::int64_t sampled_total_ = 0;
  std::int64_t step_ = -1;
  std::vector<MemorySample> samples_;
};

}  // namespace gradwire
