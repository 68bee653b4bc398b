#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <span>
#include <vector>

#include "gradwire/base/types.h"
#include "gradwire/servers/staleness.h"

namespace gradwire::servers {

/// A received update, by the caller's number.
using UpdateId = std::size_t;

/// The decisions of RowCore.
class RowActions {
 public:
  virtual ~RowActions() = default;

  /// Steps rows with the mean of these updates, which are added in this order, and frees them.
  virtual void apply(std::span<const UpdateId> updates) = 0;
  /// Sends a worker the rows of its oldest look-up that is not answered, of which `version` steps
  /// are applied; or those of its read.
  virtual void answer_look_up(Rank worker, std::int64_t version) = 0;
  virtual void answer_read(Rank worker) = 0;
};

/// The rules of one server of rows: when updates are applied, and which rows may be sent. A state
/// machine without clock, threads, network and rows.
///
/// A worker's clock counts its batches. For batch c it looks up rows (on_look_up), and later pushes
/// their gradients (on_update), both in order. Step c is made of the updates c of all living
/// workers, once they are here. Look-up c is answered when step c - 1 - `staleness` is applied, so
/// that a worker has at most `staleness` + 1 permits: batches from an answered look-up to the
/// applied gradient. If each worker looks up `staleness` batches ahead, each look-up has exactly
/// the steps before, whatever the times: the same rows in every run. Not thread-safe.
class RowCore {
 public:
  /// `actions` must outlive this.
  RowCore(int workers, std::int64_t staleness, RowActions& actions);

  /// A look-up has arrived. Throws Exception(corrupted) for a clock that is not the next, and one
  /// for which the worker has no permit until it pushes an update; the state is as before.
  void on_look_up(Rank worker, std::int64_t clock);
  /// An update has arrived. Throws Exception(corrupted) for a clock that is not the next, or whose
  /// look-up has no answer; the state is as before.
  void on_update(Rank worker, std::int64_t clock, UpdateId update);
  /// The worker asks for rows without a permit, once all updates that it has pushed are applied.
  /// Throws Exception(corrupted) if its last read has no answer.
  void on_read(Rank worker);
  /// The worker is lost or has left. Steps no longer wait for it; updates that have arrived from it
  /// are applied.
  void on_gone(Rank worker);

  /// Number of steps applied.
  std::int64_t version() const { return version_; }
  /// Staleness of updates: steps between the answer to the look-up and the update's own.
  const Staleness& staleness() const { return all_; }
  /// The largest number of permits that one worker had.
  std::int64_t max_permits() const { return max_permits_; }

 private:
  struct Worker {
    bool lives = true;
    bool reads = false;
    std::int64_t looked = 0;           ///< Look-ups that have arrived.
    std::int64_t updated = 0;          ///< Updates that have arrived.
    std::deque<std::int64_t> answers;  ///< Versions of its answered look-ups from version_ on.
    std::deque<UpdateId> updates;      ///< From version_ on.

    std::int64_t answered(std::int64_t version) const {
      return version + static_cast<std::int64_t>(answers.size());
    }
  };

  Worker& checked(Rank worker);
  bool is_complete() const;
  void apply();
  void answer();
  void settle();

  std::int64_t staleness_;
  RowActions& actions_;
  std::vector<Worker> workers_;
  std::int64_t version_ = 0;
  std::int64_t max_permits_ = 0;
  Staleness all_;
};

}  // namespace gradwire::servers
