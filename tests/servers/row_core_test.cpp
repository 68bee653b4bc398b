#include "gradwire/servers/row_core.h"

#include <algorithm>
#include <functional>
#include <map>
#include <optional>
#include <queue>
#include <string>
#include <vector>

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "gradwire/base/error.h"
#include "gradwire/base/random.h"

namespace gradwire::servers::test {
namespace {

/// A run of workers with one server of rows.
struct RowScenario {
  int workers = 3;
  std::int64_t staleness = 2;
  std::int64_t permitted = 2;  ///< The staleness that is checked; another is a mutant.
  int batches = 6;             ///< Each worker has so many.
  std::uint64_t seed = 0;
  std::optional<int> lost_before;  ///< The number of the event before which a worker is lost.
  bool updates_twice = false;      ///< A mutant: the last worker's updates count for two.
};

/// Workers that look up `staleness` batches ahead, compute and push, in virtual time. Checks every
/// rule by its own books.
class SimulatedRows final : private RowActions {
 public:
  explicit SimulatedRows(const RowScenario& scenario)
      : scenario_(scenario),
        random_(scenario.seed),
        core_(scenario.workers, scenario.staleness, *this),
        workers_(static_cast<std::size_t>(scenario.workers)) {}

  /// Returns "" or which rule was broken.
  std::string run() {
    for (Rank rank = 0; rank < scenario_.workers; ++rank) look_ahead(rank);
    while (!queue_.empty() && broken_.empty()) {
      if (scenario_.lost_before == events_++) lose(static_cast<Rank>(events_ % scenario_.workers));
      const Event event = queue_.top();
      queue_.pop();
      now_ = event.time;
      event.action();
    }
    for (const Worker& worker : workers_) {
      expect(!worker.lives || worker.pushed == scenario_.batches, "a worker waits for ever");
    }
    return broken_;
  }

  int events() const { return events_; }
  const RowCore& core() const { return core_; }
  /// By worker and batch: the version that its look-up had.
  const std::map<std::pair<Rank, std::int64_t>, std::int64_t>& seen() const { return seen_; }

 private:
  struct Worker {
    bool lives = true;
    bool reads = false;
    std::int64_t looked = 0, answered = 0, pushed = 0, arrived = 0, applied = 0;
    double clear = 0;  ///< When its last message arrives: they arrive in order.
  };
  struct Event {
    double time;
    int number;
    std::function<void()> action;
    bool operator>(const Event& other) const {
      return time != other.time ? time > other.time : number > other.number;
    }
  };

  Worker& of(Rank rank) { return workers_[static_cast<std::size_t>(rank)]; }
  void expect(bool holds, const std::string& rule) {
    if (!holds && broken_.empty()) broken_ = rule;
  }
  void at(double time, std::function<void()> action) {
    queue_.push({time, scheduled_++, std::move(action)});
  }
  /// A message of the worker to the server.
  void send(Rank rank, std::function<void()> action) {
    Worker& worker = of(rank);
    worker.clear = std::max(worker.clear, now_ + 0.1 + random_.unit());
    at(worker.clear, [this, rank, action = std::move(action)] {
      if (of(rank).lives) action();
    });
  }

  void look_ahead(Rank rank) {
    Worker& worker = of(rank);
    while (worker.looked < scenario_.batches &&
           worker.looked <= worker.pushed + scenario_.staleness) {
      send(rank, [this, rank, clock = worker.looked++] { core_.on_look_up(rank, clock); });
    }
  }

  void answer_look_up(Rank rank, std::int64_t version) override {
    Worker& worker = of(rank);
    expect(worker.lives, "a lost worker is answered");
    const std::int64_t clock = worker.answered++;
    seen_[{rank, clock}] = version;
    expect(version == version_, "an answer has another version than the rows");
    expect(worker.answered - worker.applied <= scenario_.permitted + 1, "too many permits");
    at(now_ + 0.1 + 3 * random_.unit(), [this, rank, clock] { compute(rank, clock); });
  }

  /// Batches are computed in order: an answer may overtake another.
  void compute(Rank rank, std::int64_t clock) {
    Worker& worker = of(rank);
    if (!worker.lives) return;
    if (clock != worker.pushed) {
      at(now_ + 0.5, [this, rank, clock] { compute(rank, clock); });
      return;
    }
    send(rank, [this, rank, clock] {
      ++of(rank).arrived;
      updates_.push_back({rank, clock});
      core_.on_update(rank, clock, updates_.size() - 1);
      if (scenario_.updates_twice && rank == scenario_.workers - 1) --of(rank).applied;
    });
    ++worker.pushed;
    look_ahead(rank);
    if (random_.one_in(3) && !worker.reads) {
      worker.reads = true;
      send(rank, [this, rank] { core_.on_read(rank); });
    }
  }

  void answer_read(Rank rank) override {
    Worker& worker = of(rank);
    worker.reads = false;
    expect(worker.lives && worker.applied == worker.arrived, "a read lacks the worker's updates");
  }

  void apply(std::span<const UpdateId> updates) override {
    std::vector<Rank> ranks;
    for (const UpdateId id : updates) {
      expect(!applied_[id], "an update is applied twice");
      applied_[id] = true;
      expect(updates_[id].clock == version_, "a step has another step's update");
      ranks.push_back(updates_[id].rank);
      ++of(updates_[id].rank).applied;
    }
    expect(std::ranges::is_sorted(ranks), "updates are not in the order of workers");
    for (Rank rank = 0; rank < scenario_.workers; ++rank) {
      expect(!of(rank).lives || std::ranges::count(ranks, rank) == 1,
             "a step lacks a living worker's update");
    }
    ++version_;
  }

  void lose(Rank rank) {
    if (!std::exchange(of(rank).lives, false)) return;
    core_.on_gone(rank);
  }

  struct Update {
    Rank rank;
    std::int64_t clock;
  };
  RowScenario scenario_;
  Random random_;
  RowCore core_;
  std::vector<Worker> workers_;
  std::vector<Update> updates_;
  std::map<UpdateId, bool> applied_;
  std::map<std::pair<Rank, std::int64_t>, std::int64_t> seen_;
  std::priority_queue<Event, std::vector<Event>, std::greater<>> queue_;
  double now_ = 0;
  int scheduled_ = 0, events_ = 0;
  std::int64_t version_ = 0;
  std::string broken_;
};

RowScenario drawn(std::uint64_t seed) {
  Random random(seed);
  RowScenario scenario{.workers = 1 + static_cast<int>(random.below(4)),
                       .staleness = static_cast<std::int64_t>(random.below(5)),
                       .batches = 1 + static_cast<int>(random.below(8)),
                       .seed = seed};
  scenario.permitted = scenario.staleness;
  return scenario;
}

TEST(RowCore, NeverExceedsPermitsAndAlwaysFinishes) {
  for (std::uint64_t seed = 0; seed < 3'000; ++seed) {
    const RowScenario scenario = drawn(seed);
    SimulatedRows run(scenario);
    ASSERT_EQ(run.run(), "") << "seed " << seed;
    EXPECT_EQ(run.core().version(), scenario.batches);
    EXPECT_LE(run.core().max_permits(), scenario.staleness + 1);
    EXPECT_LE(run.core().staleness().max(), scenario.staleness);
    EXPECT_EQ(run.core().staleness().count(), scenario.workers * scenario.batches);
  }
}

TEST(RowCore, GivesTheSameRowsWhateverTheTimes) {
  for (std::uint64_t seed = 0; seed < 1'000; ++seed) {
    const RowScenario scenario = drawn(seed);
    SimulatedRows run(scenario);
    ASSERT_EQ(run.run(), "");
    for (const auto& [batch, version] : run.seen()) {
      EXPECT_EQ(version, std::max<std::int64_t>(0, batch.second - scenario.staleness)) << seed;
    }
  }
}

TEST(RowCore, GoesOnWithoutALostWorkerAtEveryEvent) {
  int lost = 0;
  for (std::uint64_t seed = 0; seed < 100; ++seed) {
    RowScenario scenario = drawn(seed);
    SimulatedRows whole(scenario);
    ASSERT_EQ(whole.run(), "");
    for (int event = 0; event < whole.events(); ++event, ++lost) {
      scenario.lost_before = event;
      SimulatedRows run(scenario);
      ASSERT_EQ(run.run(), "") << "seed " << seed << ", lost before event " << event;
      EXPECT_LE(run.core().max_permits(), scenario.staleness + 1);
    }
  }
  EXPECT_GT(lost, 1'000);
}

TEST(RowCore, IsCheckedByBooksThatSeeMutants) {
  int wide = 0, twice = 0;
  for (std::uint64_t seed = 0; seed < 200; ++seed) {
    RowScenario scenario{.workers = 2, .staleness = 2, .permitted = 1, .seed = seed};
    wide += static_cast<int>(SimulatedRows(scenario).run() == "too many permits");
    scenario.permitted = 2;
    scenario.updates_twice = true;
    twice += static_cast<int>(!SimulatedRows(scenario).run().empty());
  }
  EXPECT_EQ(wide, 200);
  EXPECT_EQ(twice, 200);
}

class NoActions final : public RowActions {
 public:
  void apply(std::span<const UpdateId> /*updates*/) override {}
  void answer_look_up(Rank /*worker*/, std::int64_t /*version*/) override {}
  void answer_read(Rank /*worker*/) override {}
};

TEST(RowCore, RefusesNumbersThatNoWorkerHas) {
  NoActions actions;
  RowCore core(2, 1, actions);
  core.on_look_up(0, 0);
  EXPECT_THROW(core.on_look_up(0, 2), Exception);
  EXPECT_THROW(core.on_look_up(0, 0), Exception);
  EXPECT_THROW(core.on_look_up(2, 0), Exception);
  core.on_look_up(0, 1);
  EXPECT_THROW(core.on_look_up(0, 2), Exception) << "no permit";
  EXPECT_THROW(core.on_update(0, 1, 0), Exception);
  EXPECT_THROW(core.on_update(1, 0, 0), Exception) << "nothing was looked up";
  core.on_update(0, 0, 0);
  EXPECT_THROW(core.on_update(0, 0, 1), Exception);
  EXPECT_EQ(core.version(), 0) << "the other worker's is not here";
  core.on_read(0);
  EXPECT_THROW(core.on_read(0), Exception);
}

}  // namespace
}  // namespace gradwire::servers::test
