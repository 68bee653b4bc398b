#pragma once

#include <cstdint>
#include <deque>
#include <vector>

#include "gradwire/base/types.h"

namespace gradwire::servers {

/// A batch: consecutive positions in the permutation of an epoch. Wire format.
struct Deal {
  std::int64_t epoch = 0;
  std::int64_t begin = 0;
  std::int64_t count = 0;    ///< 0: there are none now.
  std::int64_t applied = 0;  ///< Samples of the run that had been applied when it was dealt.
  std::int64_t first = 0;    ///< The first worker that lived when it was dealt.
  std::int64_t taken = 0;    ///< Samples that this worker has taken, with these.
  std::int64_t most = 0;     ///< And that worker which has taken most.
  std::int64_t stop = 0;     ///< The signal on which all workers are to stop; 0: none.
};

/// The part of a group's batch that one of its members computes.
struct DealShare {
  Deal batch;
  double weight = 1;  ///< Weight of its mean gradient in that of the group.
};
/// Cuts a batch evenly. Where it has fewer samples than the group members, several compute the same
/// one, so that each pushes a gradient. The weights are such that all samples count the same.
DealShare share_of(const Deal& batch, int member, int members);

/// The end of a meeting of all living workers.
struct Meeting {
  std::int64_t clock = 0;    ///< With which they go on.
  std::int64_t applied = 0;  ///< Samples that were applied; of server 0.
  std::int64_t first = 0;    ///< The first of these workers.
};

/// The samples of a run that have been applied.
struct DealProgress {
  std::int64_t dealt = 0;       ///< Samples, from the begin of the first epoch.
  std::vector<Deal> unapplied;  ///< Batches of these that were not applied.

  std::int64_t applied() const;
};

std::vector<std::int64_t> encode(const DealProgress& progress);
/// Throws Exception(corrupted).
DealProgress decode_progress(const std::vector<std::int64_t>& integers);

/// Deals the samples of a training run to workers on demand, each of them once: a slow worker gets
/// fewer. Batches whose gradients came to nothing are dealt again. A state machine; not
/// thread-safe.
///
/// A worker asks (on_take), computes, and pushes the oldest batches that it has (on_push), of which
/// the caller says what became of them.
class SampleDealer {
 public:
  /// Goes on after `progress`. Throws Exception(invalid_argument) for numbers that are none of a
  /// run of `epochs` epochs of `samples` samples.
  SampleDealer(std::int64_t samples, std::int64_t epochs, int workers,
               const DealProgress& progress = {});

  /// Returns a batch of at most `count` samples, which the worker has from now on. One of 0
  /// samples says that others have all those that are not applied. Throws Exception(corrupted) if
  /// `count` is not positive.
  Deal on_take(Rank worker, std::int64_t count);
  /// Returns the `batches` oldest batches that the worker has. They are no longer its own. Throws
  /// Exception(corrupted) if it has fewer.
  std::vector<Deal> on_push(Rank worker, std::int64_t batches);
  /// Pushed batches were applied.
  void on_applied(const std::vector<Deal>& batches);
  /// Pushed batches were not.
  void on_dropped(const std::vector<Deal>& batches);
  /// The worker ends, or is lost. The dealer deals its batches again.
  void on_gone(Rank worker);

  std::int64_t applied() const { return applied_; }  ///< Samples, of all epochs.
  DealProgress progress() const;

 private:
  std::deque<Deal>& batches_of(Rank rank) { return has_[static_cast<std::size_t>(rank)]; }
  Deal next(std::int64_t count);

  std::int64_t samples_, epochs_;
  Deal fresh_;                         ///< The samples of this epoch that were never dealt.
  std::deque<Deal> returned_;          ///< To be dealt again.
  std::vector<std::deque<Deal>> has_;  ///< By worker.
  std::vector<std::int64_t> taken_;    ///< By worker: samples.
  std::int64_t applied_ = 0;
};

}  // namespace gradwire::servers
