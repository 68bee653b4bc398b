#pragma once

#include <cstddef>
#include <cstdint>
#include <mutex>
#include <vector>

#include "gradwire/base/clock.h"
#include "gradwire/report/memory_peak.h"
#include "gradwire/report/memory_timeline.h"

namespace gradwire {

/// One allocation, as its ledger knows it. Lives beside the memory, so that counting allocates
/// nothing.
struct MemoryBlock {
  std::int64_t bytes = 0;
  std::uint64_t serial = 0;      ///< Later ones have greater numbers.
  MemoryBlock* older = nullptr;  ///< Of those that are in use.
  MemoryBlock* newer = nullptr;
  std::uint32_t scope = 0;  ///< Which KeptMemoryScope it was made in; 0: none.
  MemoryCategory category = MemoryCategory::other;
};

/// What memory is in use, by category, exactly: now, at the greatest moment so far, and over time.
/// The samples are bounded in number, and cover the whole run: one whenever somebody asks for it,
/// one whenever the total has moved by 1/64 of the peak since the last. When there are too many,
/// they are thinned to half, each stretch keeping its greatest. Thread-safe.
class MemoryLedger {
 public:
  static constexpr std::size_t kSamples = 1 << 14;

  /// `clock` must outlive its use. `samples`: most that are kept, at least 2.
  explicit MemoryLedger(const Clock& clock, std::size_t samples = kSamples);

  /// `block` must stay where it is until it is removed.
  void add(MemoryBlock& block, std::int64_t bytes, MemoryCategory category, std::uint32_t scope);
  void remove(MemoryBlock& block);
  void relabel(MemoryBlock& block, MemoryCategory category);

  /// The number of the next block.
  std::uint64_t next_serial() const;
  /// What was made in that scope, from that number on, and is still in use, becomes `category`.
  void relabel_scope(std::uint32_t scope, std::uint64_t from, MemoryCategory category);

  /// Takes a sample now, as of that step.
  void sample(std::int64_t step);
  /// No more samples: the clock may go.
  void stop_sampling();

  MemoryBytes bytes() const;
  MemoryPeak peak() const;
  /// When the timeline's seconds begin.
  Time begin() const { return begin_; }
  /// The moment of the peak is in it.
  MemoryTimeline timeline() const;

 private:
  MemorySample now_locked() const;
  void changed(MemoryCategory category);
  void keep(const MemorySample& sample);

  const Clock* clock_;
  const std::size_t most_;
  const Time begin_;

  mutable std::mutex mutex_;
  std::uint64_t serial_ = 0;
  MemoryBlock* newest_ = nullptr;
  MemoryBytes bytes_{};
  std::int64_t total_ = 0;
  MemorySample peak_;  ///< Everything at the moment of the greatest total.
  std::int64_t peak_total_ = 0;
  MemoryBytes most_of_each_{};
  std::int64_t sampled_total_ = 0;
  std::int64_t step_ = -1;
  std::vector<MemorySample> samples_;
};

}  // namespace gradwire
