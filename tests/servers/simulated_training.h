#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <queue>
#include <set>
#include <string>
#include <vector>

#include "gradwire/base/random.h"
#include "gradwire/servers/server_core.h"

namespace gradwire::servers::test {

/// A run of workers with one server.
struct Scenario {
  ServerPolicy policy;
  std::size_t units = 2;
  int steps = 5;  ///< Number of each worker's steps.
  std::uint64_t seed = 0;
  bool repeats = false;            ///< Some pushes arrive twice.
  std::optional<int> lost_before;  ///< The number of the event before which a worker is lost.
  bool rejoins = false;            ///< The lost worker comes back.
  bool pauses = false;             ///< Each pauses once, until all do.
};

/// Workers that compute and exchange messages in virtual time, and a ServerCore. Checks every rule
/// of its mode by its own books.
class SimulatedTraining final : private ShardStore {
 public:
  explicit SimulatedTraining(const Scenario& scenario);

  /// Runs until all workers are done. Returns "" or which rule was broken.
  std::string run();

  int events() const { return events_; }
  const ServerCore& core() const { return core_; }
  /// Gradients applied to all units.
  std::int64_t applied() const { return applied_; }

 private:
  struct Gradient {
    Push push;
    bool repeated = false;
    bool freed = false;
  };
  struct Worker {
    bool lives = true;
    std::optional<int> pauses_after;  ///< Steps.
    bool paused = false;
    int life = 0;  ///< Messages of an earlier life are lost.
    int steps = 0;
    std::vector<std::int64_t> clocks;    ///< By unit: of the gradient that it computes next.
    std::vector<std::int64_t> versions;  ///< By unit: that it has read.
    std::size_t awaited = 0;             ///< Units that it has asked for.
  };
  /// The units of a whole step that were applied last.
  struct WholeStep {
    std::size_t next = 0;  ///< Unit.
    int event = 0;
    std::vector<Rank> workers;
  };
  struct Event {
    double time;
    int number;
    std::function<void()> action;
    bool operator>(const Event& other) const {
      return time != other.time ? time > other.time : number > other.number;
    }
  };

  void apply(std::size_t unit, std::span<const GradientId> gradients, double factor) override;
  void drop(GradientId gradient) override;

  void after(double delay, std::function<void()> action);
  void at_worker(Rank rank, double delay, std::function<void(Worker&)> action);
  bool is_synchronous(std::size_t unit) const {
    return scenario_.policy.mode_of(unit) == Mode::sync;
  }
  double delay() { return 0.1 + random_.unit(); }
  void begin_step(Rank rank);
  void read(Rank rank, std::size_t unit, std::int64_t version);
  void push(Rank rank, std::size_t unit);
  void deliver(const Push& push, double delay, bool repeated);
  void arrive(const Push& push, bool repeated);
  void lose(Rank rank);
  void rejoin(Rank rank);
  void pause(Rank rank);
  void resume_if_all_pause();
  void send_answers();
  void begin_graces();
  void expect(bool holds, const std::string& rule);
  std::int64_t slowest(std::size_t unit) const;
  void check_synchronous(std::size_t unit, std::span<const GradientId> gradients);
  void check_whole(std::size_t unit, std::span<const GradientId> gradients);

  Scenario scenario_;
  Random random_;
  ServerCore core_;
  std::vector<Worker> workers_;
  std::vector<Gradient> gradients_;
  std::vector<std::int64_t> versions_;  ///< By unit: number of updates.
  WholeStep whole_;
  std::vector<std::int64_t> waiting_;  ///< By unit: the version whose grace has begun; or -1.
  /// Numbers of the gradients that have arrived for the open step of each unit, in mode sync.
  std::vector<std::vector<GradientId>> open_;
  /// By unit and worker: clocks that have arrived, below this one.
  std::vector<std::vector<std::int64_t>> pushed_;
  std::priority_queue<Event, std::vector<Event>, std::greater<>> queue_;
  double now_ = 0;
  int scheduled_ = 0, events_ = 0;
  std::int64_t applied_ = 0;
  std::string broken_;
};

}  // namespace gradwire::servers::test
