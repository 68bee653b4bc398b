#pragma once

#include <cstdint>
#include <deque>
#include <utility>
#include <vector>

#include "gradwire/base/types.h"

namespace gradwire::servers {

/// A batch: consecutive positions in the permutation of an epoch. Wire format.
struct Deal {
  std::int64_t epoch = 0;
  std::int64_t begin = 0;
  std::int64_t count = 0;    ///< 0: there are no more now.
  std::int64_t applied = 0;  ///< Samples of the run that had been applied when it was dealt.
};

/// Deals the samples of a training run to workers on demand, each of them once: a slow worker gets
/// fewer. Batches whose gradients came to nothing are dealt again. A state machine; not
/// thread-safe.
///
/// A worker asks (on_take), computes, and pushes the oldest batches that it has (on_push), of which
/// the caller says what became of them.
class SampleDealer {
 public:
  SampleDealer(std::int64_t samples, std::int64_t epochs, int workers);

  /// The worker asks for at most `count` samples, and does nothing else until it gets them.
  void on_take(Rank worker, std::int64_t count);
  /// Returns the `batches` oldest batches that the worker has. They are no longer its own. Throws
  /// Exception(corrupted) if it has fewer.
  std::vector<Deal> on_push(Rank worker, std::int64_t batches);
  /// Pushed batches were applied.
  void on_applied(const std::vector<Deal>& batches);
  /// Pushed batches were not.
  void on_dropped(const std::vector<Deal>& batches);
  /// The worker ends, or is lost. The dealer deals its batches again.
  void on_gone(Rank worker);

  /// Returns the batches for workers that have asked. One with `count` 0 tells a worker to push its
  /// batches and to ask again, or to end if it has none, because all others have pushed theirs.
  std::vector<std::pair<Rank, Deal>> take_answers();

  std::int64_t applied() const { return applied_; }  ///< Samples, of all epochs.

 private:
  struct Worker {
    std::deque<Deal> has;
    std::int64_t wanted = 0;  ///< 0: it waits for none.
  };

  Worker& worker(Rank rank) { return workers_[static_cast<std::size_t>(rank)]; }
  Deal next(std::int64_t count);
  bool others_have_some() const;

  std::int64_t samples_, epochs_;
  Deal fresh_;                 ///< The samples of this epoch that were never dealt.
  std::deque<Deal> returned_;  ///< To be dealt again.
  std::vector<Worker> workers_;
  std::int64_t applied_ = 0;
};

}  // namespace gradwire::servers
