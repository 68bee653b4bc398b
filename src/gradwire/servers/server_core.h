#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <span>
#include <vector>

#include "gradwire/base/types.h"
#include "gradwire/servers/server_policy.h"
#include "gradwire/servers/staleness.h"

namespace gradwire::servers {

/// A received gradient, by the caller's number.
using GradientId = std::size_t;

/// A worker's gradient of one unit.
struct Push {
  Rank worker = 0;
  std::size_t unit = 0;
  std::int64_t clock = 0;  ///< The worker's step, counted from 0.
  std::int64_t base = 0;   ///< Version of the parameters of which it is the gradient.
  GradientId gradient = 0;
  double rate = 1;  ///< Factor on the learning rate. All workers give a synchronous step the same.
};

/// Parameters of a unit may be sent to a worker.
struct Answer {
  Rank worker = 0;
  std::size_t unit = 0;
  std::int64_t version = 0;
};

/// The end of a gradient.
enum class Outcome : std::uint8_t {
  dropped,
  added,    ///< It is part of a step; others of it follow.
  stepped,  ///< It is the last or only one of a step.
};

/// A gradient that was applied or dropped, for a log from which a run can be repeated.
struct Applied {
  std::size_t unit = 0;
  Rank worker = 0;
  std::int64_t clock = 0;
  std::int64_t base = 0;
  std::int64_t version = 0;  ///< Version of the parameters before it.
  GradientId gradient = 0;
  Outcome outcome = Outcome::stepped;
  double factor = 1;  ///< On the learning rate; a step has that of its last gradient.
};

/// This server's shards of the parameters, and their optimizer.
class ShardStore {
 public:
  virtual ~ShardStore() = default;

  /// Steps the unit with the mean of the gradients, which are added in this order, at `factor`
  /// times the learning rate, and frees them. With whole steps called for each unit of a step, in
  /// the order of the units; the last call steps them all, and may be the one that frees.
  virtual void apply(std::size_t unit, std::span<const GradientId> gradients, double factor) = 0;
  /// Frees a gradient that is not applied.
  virtual void drop(GradientId gradient) = 0;
};

/// The rules of one server: which gradients are applied and when, and which worker may read which
/// parameters. A state machine without clock, threads, network and tensors. Units are independent,
/// unless the policy has whole steps.
///
/// Parameters have a version, the number of updates of their unit. A worker's clock counts its
/// steps. For clock c it reads each unit (on_pull), computes, and pushes a gradient of each
/// (on_push). Not thread-safe.
class ServerCore {
 public:
  /// `store` must outlive this. Calls `log`, unless it is null, for each gradient of a living
  /// worker that is applied or dropped, before the store. Throws Exception(invalid_argument) for an
  /// invalid policy.
  ServerCore(const ServerPolicy& policy, std::size_t units, ShardStore& store,
             std::function<void(const Applied&)> log = nullptr);

  /// The unit has had `version` updates in earlier runs. Workers must meet next (on_pause()).
  /// Throws Exception(corrupted) for a version below 0, and after a push.
  void begin_at(std::size_t unit, std::int64_t version);
  /// A gradient has arrived. Gradients of a lost worker and repeated ones are dropped. Throws
  /// Exception(corrupted) for numbers that no worker has, or may have yet; the state is as before.
  void on_push(const Push& push);
  /// Whether the unit's step has enough gradients, and waits for more (ServerPolicy::grace). The
  /// caller measures the time, and calls on_grace_over() if that still holds then.
  bool waits_for_more(std::size_t unit) const;
  void on_grace_over(std::size_t unit);
  /// The worker asks for the unit's parameters, to compute its gradient of `clock`. Throws as
  /// on_push().
  void on_pull(Rank worker, std::size_t unit, std::int64_t clock);
  /// The worker is lost: no other worker waits for it. The gradients that it has pushed count; in a
  /// whole step, if it has pushed all units.
  void on_lost(Rank worker);
  /// The worker has no samples: no other worker waits for it, until resume().
  void on_pause(Rank worker);
  /// All living workers go on with the clock that this returns; with each unit that is synchronous
  /// they go on with its version. Call when all of them have paused.
  std::int64_t resume();
  /// A worker comes, again or for the first time, and begins with `clock`. In mode sync another one
  /// must live, whose steps it joins. Throws as on_push().
  void on_join(Rank worker, std::int64_t clock);
  /// The earliest clock with which a worker may join this server; a worker of several servers
  /// begins with the latest.
  std::int64_t join_clock() const;

  /// The parameters that may be sent, as of now, in the order in which that became true.
  std::vector<Answer> take_answers();

  std::int64_t version(std::size_t unit) const { return units_[unit].version; }
  int living() const;
  bool is_living(Rank worker) const { return living_[index(worker)]; }

  const Staleness& staleness_of_unit(std::size_t unit) const { return units_[unit].staleness; }
  const Staleness& staleness_of_worker(Rank worker) const { return by_worker_[index(worker)]; }
  const Dropped& dropped(Rank worker) const { return dropped_[index(worker)]; }
  /// Mean factor of the rate rule over all gradients that were applied; 1 if there was none.
  double mean_factor() const;

 private:
  /// A gradient of the step that is not complete, in mode sync.
  struct Contribution {
    Rank worker = 0;
    std::int64_t clock = 0;
    std::int64_t base = 0;
    GradientId gradient = 0;
    double rate = 1;
  };
  struct Waiting {
    Rank worker = 0;
    std::int64_t clock = 0;
  };
  struct Unit {
    Mode mode = Mode::sync;
    std::int64_t version = 0;
    std::vector<std::int64_t> clocks;  ///< By worker: the next clock that it may push.
    std::vector<Contribution> open;    ///< In the order of their arrival.
    bool grace_over = false;           ///< The open step waits no longer.
    std::vector<Waiting> waiting;      ///< Pulls, in the order of their arrival.
    Staleness staleness;
  };

  static std::size_t index(Rank worker) { return static_cast<std::size_t>(worker); }
  void check_worker(Rank worker, std::size_t unit) const;
  void drop(const Push& push);
  void apply(std::size_t unit, std::vector<Contribution> gradients);
  int contributors(const Unit& unit) const;
  bool has_enough(const Unit& unit) const;
  bool completes_step(const Unit& unit) const;
  bool may_read(const Unit& unit, std::int64_t clock) const;
  bool is_awaited(Rank worker) const { return is_living(worker) && !paused_[index(worker)]; }
  std::int64_t slowest(const Unit& unit) const;
  void drop_part(Rank worker);
  void begin_where_others_left(Unit& unit);
  bool step(std::size_t unit);
  void answer(std::size_t unit);
  void settle(std::size_t unit);

  ServerPolicy policy_;
  ShardStore& store_;
  std::function<void(const Applied&)> log_;
  std::vector<Unit> units_;
  std::vector<bool> living_, paused_;  ///< By worker.
  std::vector<Staleness> by_worker_;
  std::vector<Dropped> dropped_;  ///< By worker.
  std::vector<Answer> answers_;
  double factors_ = 0;  ///< Sum over all gradients that were applied.
};

}  // namespace gradwire::servers
