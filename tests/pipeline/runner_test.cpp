#include "gradwire/pipeline/runner.h"

#include <algorithm>
#include <map>
#include <set>
#include <string>
#include <tuple>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "gradwire/base/random.h"
#include "gradwire/pipeline/catalogue.h"
#include "gradwire/pipeline/communicator_transfers.h"
#include "gradwire/pipeline/verifier.h"
#include "gradwire/pipeline/weight_rules.h"
#include "tests/pipeline/schedules.h"
#include "tests/support/local_job.h"

namespace gradwire::pipeline {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

/// Stages of integers: a forward mixes its inputs with the stage and its weight, a backward mixes
/// gradients with what the forward had, and each stage chains the gradients of its weight, so that
/// their order shows. An update changes the weight.
class IntegerStages : public StageWork {
 public:
  using Value = std::int64_t;

  IntegerStages(const PipelineSchedule& schedule, std::int64_t steps)
      : schedule_(schedule), steps_(steps) {}

  std::optional<LentSpan> receive_buffer(const Message& message, std::int64_t step) override {
    if (step >= steps_) return std::nullopt;
    buffers = std::max(buffers, ++waiting_[{message.from, message.to}]);
    return LentSpan{&values_[{message, step}], 1, DataType::int64, nullptr};
  }

  void compute(const Task& task, std::int64_t step) override {
    const Value in = inputs(task, step);
    Value& activation = activations_[{step, task.stage, task.micro_batch}];
    if (task.compute == Compute::forward) {
      activation = forward(in, step, task.micro_batch, weight_for(task.stage, step), task.stage);
      give(task, step, activation);
      return;
    }
    Value& gradient = gradients_[{step, task.stage, task.micro_batch}];
    if (task.compute != Compute::backward_weight) {
      gradient = mixed(in, activation);
      give(task, step, gradient);
    }
    if (task.compute != Compute::backward_input) {
      Value& sum = sums_[task.stage];
      sum = mixed(sum, gradient + activation);
    }
  }

  LentConstSpan output(const Message& message, std::int64_t step) override {
    unsent_.insert({message, step});
    return {&values_.at({message, step}), 1, DataType::int64};
  }
  void sent(const Message& message, std::int64_t step) override {
    EXPECT_EQ(unsent_.erase({message, step}), 1U);
    values_.erase({message, step});
  }
  void update(Stage stage, std::int64_t step) override {
    const int a_step = updates_each_micro_batch(schedule_.weights) ? schedule_.micro_batches : 1;
    EXPECT_EQ(updated_[stage]++ / a_step, step);
    before_[stage] = weights[stage];
    weights[stage] += sums_[stage];
    sums_[stage] = 0;
  }

  void set_steps(std::int64_t steps) { steps_ = steps; }
  bool all_sent() const { return unsent_.empty(); }

  static Value mixed(Value a, Value b) { return (a * 31 + b * 17 + 7) % 1'000'003; }
  static Value forward(Value in, std::int64_t step, MicroBatch i, Value weight, Stage stage) {
    return mixed(in + step * 1000 + i, weight + stage);
  }

  std::map<Stage, Value> weights;
  int buffers = 0;  ///< Messages of one pair of stages that waited for their use at most.

  std::int64_t first = 0;  ///< First step since the pipeline was empty.

 private:
  /// Version k - 1 in step k for double_buffer, else the newest.
  Value weight_for(Stage stage, std::int64_t step) {
    const bool older =
        schedule_.weights == WeightRule::double_buffer && step > first && updated_[stage] == step;
    return older ? before_[stage] : weights[stage];
  }

  Value inputs(const Task& task, std::int64_t step) {
    Value sum = 1;
    for (const Message& message : inputs_of(schedule_, task)) {
      sum += values_.at({message, step}) * (message.from + 1);
      values_.erase({message, step});
      --waiting_[{message.from, message.to}];
    }
    return sum;
  }
  void give(const Task& task, std::int64_t step, Value value) {
    for (const Message& message : outputs_of(schedule_, task)) values_[{message, step}] = value;
  }

  const PipelineSchedule& schedule_;
  std::int64_t steps_;
  std::map<std::pair<Message, std::int64_t>, Value> values_;
  std::map<std::tuple<std::int64_t, Stage, MicroBatch>, Value> activations_, gradients_;
  std::map<Stage, Value> sums_, before_;
  std::map<Stage, std::int64_t> updated_;
  std::set<std::pair<Message, std::int64_t>> unsent_;
  std::map<std::pair<Stage, Stage>, int> waiting_;
};

/// The communicator of a job, which outlives what uses it here.
std::shared_ptr<Communicator> borrowed(Communicator& communicator) {
  return {std::shared_ptr<void>(), &communicator};
}

/// All computations of one micro-batch after the other, on one rank.
PipelineSchedule on_one_rank(const PipelineSchedule& schedule) {
  PipelineSchedule alone = schedule;
  std::ranges::fill(alone.rank_of, 0);
  alone.order.assign(1, {});
  alone.kept = 0;
  for (MicroBatch i = 0; i < alone.micro_batches; ++i) {
    for (Stage s = 0; s < alone.stages(); ++s) alone.order[0].push_back({Compute::forward, s, i});
    for (Stage s = alone.stages(); alone.trains && s-- > 0;) {
      alone.order[0].push_back({Compute::backward, s, i});
    }
  }
  return alone;
}

/// Transfers of a job of one rank, which has none.
class NoTransfers final : public StageTransfers {
 public:
  Work send(const Message&, Rank, LentConstSpan) override { std::abort(); }
  Work receive(const Message&, Rank, LentSpan) override { std::abort(); }
  void barrier() override {}
};

std::map<Stage, std::int64_t> weights_of_one_process(const PipelineSchedule& schedule, int steps) {
  const PipelineSchedule alone = on_one_rank(schedule);
  IntegerStages stages(alone, steps);
  NoTransfers none;
  PipelineRunner runner(alone, 0, stages, none);
  for (int i = 0; i < steps; ++i) runner.step();
  return stages.weights;
}

constexpr int kSteps = 3;

/// Runs the schedule on a job, and compares with one process.
void expect_as_one_process(const PipelineSchedule& schedule, test::LocalJob& job) {
  const auto expected = weights_of_one_process(schedule, kSteps);
  const auto errors = job.run([&](Rank rank, Communicator& communicator) {
    IntegerStages stages(schedule, kSteps);
    const auto transfers = communicator_transfers(borrowed(communicator), schedule);
    PipelineRunner runner(schedule, rank, stages, *transfers);
    for (int i = 0; i < kSteps; ++i) {
      runner.step();
      runner.finish();  // Receives of the next step are in flight.
    }
    EXPECT_TRUE(stages.all_sent());
    EXPECT_LE(stages.buffers, 1 + with_bounded_receives(schedule).receives_ahead);
    for (const auto& [stage, weight] : stages.weights) {
      EXPECT_EQ(schedule.rank_of[static_cast<std::size_t>(stage)], rank);
      EXPECT_EQ(weight, expected.at(stage)) << schedule.name << ", stage " << stage;
    }
  });
  EXPECT_THAT(errors, ::testing::Each("")) << schedule.name;
}

/// One process that keeps all versions of the weights of a chain, and whose forward uses the one
/// that the schedule declares. The pipeline is empty before step `first`.
std::map<Stage, std::int64_t> weights_with_versions(const PipelineSchedule& schedule, int steps,
                                                    int first) {
  using Value = IntegerStages::Value;
  const int m = schedule.micro_batches;
  const int stages = schedule.stages();
  const bool by_step = schedule.weights == WeightRule::double_buffer;
  std::vector<std::vector<Value>> versions(static_cast<std::size_t>(stages), {0});
  std::vector<Value> sums(static_cast<std::size_t>(stages), 0);
  for (int g = 0; g < steps * m; ++g) {
    const int base = g / m >= first ? first : 0;
    std::vector<Value> activations;
    for (Stage s = 0; s < stages; ++s) {
      const auto place = static_cast<std::size_t>(s);
      const int stale = schedule.weight_bounds[place].staleness;
      const int version = by_step ? std::max(g / m - stale, base) : std::max(g - stale, base * m);
      const Value in = s == 0 ? 1 : 1 + activations.back() * s;
      activations.push_back(IntegerStages::forward(
          in, g / m, g % m, versions[place][static_cast<std::size_t>(version)], s));
    }
    Value gradient = 0;
    for (Stage s = stages; s-- > 0;) {
      const auto place = static_cast<std::size_t>(s);
      const Value in = s + 1 == stages ? 1 : 1 + gradient * (s + 2);
      gradient = IntegerStages::mixed(in, activations[place]);
      sums[place] = IntegerStages::mixed(sums[place], gradient + activations[place]);
      if (by_step && g % m != m - 1) continue;
      versions[place].push_back(versions[place].back() + sums[place]);
      sums[place] = 0;
    }
  }
  std::map<Stage, Value> last;
  for (Stage s = 0; s < stages; ++s) last[s] = versions[static_cast<std::size_t>(s)].back();
  return last;
}

TEST(PipelineRunner, AsynchronousSchedulesUseTheVersionsTheyDeclare) {
  constexpr int kFirst = 5, kAll = 9;  // Drains before step 5.
  for (const int ranks : {1, 2, 4}) {
    test::LocalJob job(ranks);
    for (const std::string name : {"pipedream", "2bw", "pipedream:7", "2bw:6"}) {
      for (const int micro_batches : {1, 2, 3, 4, 8}) {
        const PipelineSchedule schedule = made(name, options_of(ranks, micro_batches));
        const auto expected = weights_with_versions(schedule, kAll, kFirst);
        const auto errors = job.run([&](Rank rank, Communicator& communicator) {
          IntegerStages stages(schedule, kFirst);
          const auto transfers = communicator_transfers(borrowed(communicator), schedule);
          PipelineRunner runner(schedule, rank, stages, *transfers);
          for (int i = 0; i < kFirst; ++i) runner.step();
          runner.finish();
          EXPECT_TRUE(stages.all_sent());
          stages.first = kFirst;
          stages.set_steps(kAll);
          for (int i = kFirst; i < kAll; ++i) runner.step();
          runner.finish();
          EXPECT_TRUE(stages.all_sent());
          EXPECT_EQ(stages.weights[rank], expected.at(rank)) << name << ' ' << micro_batches;
        });
        EXPECT_THAT(errors, ::testing::Each("")) << name;
      }
    }
  }
}

TEST(PipelineRunner, EveryScheduleComputesWhatOneProcessDoes) {
  for (const int ranks : {2, 4}) {
    test::LocalJob job(ranks);
    for (const Generator& generator : generators()) {
      for (const int micro_batches : {1, 3, 4, 8}) {
        PipelineSchedule schedule = made(generator.name, options_of(ranks, micro_batches, 0.5));
        if (schedule.weights != WeightRule::flush) continue;  // Above.
        for (const bool barrier : {false, true}) {
          schedule.barrier = barrier;
          expect_as_one_process(schedule, job);
        }
      }
    }
  }
}

TEST(PipelineRunner, BlockingSendsAndLateReceivesWork) {
  test::LocalJob job(3);
  for (const std::string name : {"1f1b", "gpipe", "zero_bubble"}) {
    for (const auto& [sends, receives] : {std::pair{1, 0}, {0, 4}, {2, 1}}) {
      PipelineSchedule schedule = made(name, options_of(3, 5));
      schedule.sends_in_flight = sends;
      schedule.receives_ahead = receives;
      if (find_fault(schedule)) continue;
      expect_as_one_process(schedule, job);
    }
  }
}

/// A random order that the dependencies allow, with random edges.
PipelineSchedule random_schedule(Random& random, int ranks) {
  const auto below = [&](int n) {
    return static_cast<int>(random.below(static_cast<std::uint64_t>(n)));
  };
  PipelineSchedule schedule{.name = "random", .micro_batches = 1 + below(6)};
  const int stages = ranks + below(ranks + 1);
  for (Stage s = 0; s < stages; ++s) schedule.rank_of.push_back(s < ranks ? s : below(ranks));
  schedule.edges = chain_of(stages);
  for (int i = below(3); i > 0 && stages > 2; --i) {
    const Stage from = below(stages - 2);
    schedule.edges.push_back({from, from + 2 + below(stages - from - 2)});
  }
  std::ranges::sort(schedule.edges, {}, [](const Edge& e) { return std::pair(e.from, e.to); });
  const auto [first, last] = std::ranges::unique(schedule.edges, [](const Edge& a, const Edge& b) {
    return a.from == b.from && a.to == b.to;
  });
  schedule.edges.erase(first, last);
  schedule.order.resize(static_cast<std::size_t>(ranks));
  // By stage: the number of micro-batches that are through F, I and W.
  std::vector<std::array<int, 3>> done(static_cast<std::size_t>(stages), {0, 0, 0});
  const auto inputs_there = [&](Stage s, bool forward) {
    return std::ranges::all_of(schedule.edges, [&](const Edge& e) {
      const auto at = [&](Stage stage) { return done[static_cast<std::size_t>(stage)]; };
      if (forward) return e.to != s || at(e.from)[0] > at(s)[0];
      return e.from != s || at(e.to)[1] > at(s)[1];
    });
  };
  for (int left = stages * schedule.micro_batches * 3; left > 0;) {
    const Stage s = below(stages);
    const int kind = below(3);
    auto& [f, i, w] = done[static_cast<std::size_t>(s)];
    const bool may = kind == 0   ? f < schedule.micro_batches && inputs_there(s, true)
                     : kind == 1 ? i < f && inputs_there(s, false)
                                 : w < i;
    if (!may) continue;
    constexpr Compute kKinds[] = {Compute::forward, Compute::backward_input,
                                  Compute::backward_weight};
    int& count = done[static_cast<std::size_t>(s)][static_cast<std::size_t>(kind)];
    schedule.order[static_cast<std::size_t>(schedule.rank_of[static_cast<std::size_t>(s)])]
        .push_back({kKinds[kind], s, count++});
    --left;
  }
  return schedule;
}

TEST(PipelineRunner, RandomOrdersWithSkipConnectionsComputeWhatOneProcessDoes) {
  Random random(7);
  test::LocalJob job(3);
  for (int i = 0; i < 60; ++i) {
    const PipelineSchedule schedule = random_schedule(random, 3);
    ASSERT_EQ(find_fault(schedule), std::nullopt);
    expect_as_one_process(schedule, job);
  }
}

TEST(PipelineRunner, RefusesFaultySchedulesAndRanksOutsideThem) {
  PipelineSchedule schedule = made("1f1b", options_of(2, 2));
  IntegerStages stages(schedule, 1);
  NoTransfers none;
  EXPECT_THROW(PipelineRunner(schedule, 2, stages, none), Exception);
  schedule.order[0].pop_back();
  try {
    PipelineRunner runner(schedule, 0, stages, none);
    FAIL();
  } catch (const Exception& e) {
    EXPECT_EQ(e.kind(), ErrorKind::invalid_argument);
    EXPECT_THAT(e.what(), HasSubstr("incomplete"));
  }
}

TEST(PipelineRunner, SaysWhichTaskWaitsForWhatWhenARankFails) {
  const PipelineSchedule schedule = made("1f1b", options_of(3, 4));
  test::LocalJob job(3);
  const auto errors = job.run([&](Rank rank, Communicator& communicator) {
    IntegerStages stages(schedule, 2);
    const auto transfers = communicator_transfers(borrowed(communicator), schedule);
    PipelineRunner runner(schedule, rank, stages, *transfers);
    runner.step();
    runner.finish();
    if (rank == 2) return communicator.abort("its data set is gone");
    runner.step();
    runner.finish();
  });
  EXPECT_THAT(errors[1],
              AllOf(::testing::ContainsRegex(
                        "step [01], 1[FB][0-3]: rank 1 of the pipeline "
                        "(waits for|receives|sends) the (activation|gradient) of micro-batch "
                        "[0-3] from stage [0-2] to stage [0-2]: "),
                    HasSubstr("its data set is gone")));
}

TEST(PipelineRunner, RefusesMoreMessagesThanTags) {
  PipelineSchedule schedule = made("1f1b", options_of(64, 64));
  EXPECT_LT(tag_of(schedule, {63, 62, 63}), 1 << 30);
  schedule.micro_batches = 1 << 17;
  EXPECT_THROW(tag_of(schedule, {0, 1, 0}), Exception);
}

TEST(PipelineRunner, TagsOfTrainingAndEvaluationDiffer) {
  PipelineSchedule schedule = made("1f1b", options_of(4, 6));
  std::set<int> tags;
  for (const bool trains : {true, false}) {
    schedule.trains = trains;
    for (Stage from = 0; from < 4; ++from) {
      for (Stage to = 0; to < 4; ++to) {
        for (MicroBatch i = 0; i < 6; ++i) tags.insert(tag_of(schedule, {from, to, i}));
      }
    }
  }
  EXPECT_EQ(tags.size(), 2U * 16 * 6);
}

}  // namespace
}  // namespace gradwire::pipeline
