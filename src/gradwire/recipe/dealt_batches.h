#pragma once

#include <cstdint>
#include <optional>

#include "gradwire/base/types.h"
#include "gradwire/data/data_set.h"
#include "gradwire/data/sampler.h"
#include "gradwire/servers/sample_dealer.h"
#include "gradwire/train/servers/served_module.h"

namespace gradwire::recipe {

/// The batches that servers deal to this worker, and how far all workers are.
class DealtBatches {
 public:
  /// `data` and `served` must outlive it. The order of samples is the sampler's, and a batch has at
  /// most as many as its batches have. `progress`: what earlier runs have applied. Collective.
  DealtBatches(ServedModule& served, const DataSet& data, Sampler sampler, std::int64_t epochs,
               const servers::DealProgress& progress);

  /// Asks for the next batch. `signal`: one that this worker has got, on which all are to stop; 0:
  /// none. Returns nullopt if there is none: ask again, unless ended(). Waits as Served::take().
  std::optional<Batch> next(int signal);
  /// True if all samples were applied when next() returned, and it had none.
  bool ended() const { return ended_; }
  /// The signal on which all workers are to stop; 0: none.
  int stop() const { return stop_; }

  /// Waits for all living workers; then applied() and first() are the same on all.
  void meet();

  /// Samples that all workers have trained on, as far as known: of all runs, and of this one.
  std::int64_t applied() const { return applied_; }
  std::int64_t applied_in_this_run() const { return applied_ - resumed_; }
  /// Epochs of which all samples have been applied, and whether this run began within one.
  std::int64_t epochs() const { return applied_ / data_.size; }
  bool began_within_epoch() const { return resumed_ % data_.size != 0; }
  /// This worker's speed as a share of the fastest one's, by the samples that they have taken.
  double share() const { return share_; }
  /// The first worker that is not lost, as far as known.
  Rank first() const { return first_; }

 private:
  ServedModule& served_;
  const DataSet& data_;
  Sampler sampler_;
  std::int64_t total_;
  std::int64_t resumed_, applied_;
  std::int64_t epoch_ = 0;  ///< Whose order the sampler has.
  double share_ = 1;
  Rank first_ = 0;
  int stop_ = 0;
  bool ended_ = false;
};

}  // namespace gradwire::recipe
