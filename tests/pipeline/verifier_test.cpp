#include "gradwire/pipeline/verifier.h"

#include <functional>
#include <map>
#include <utility>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "gradwire/base/random.h"
#include "gradwire/pipeline/dependencies.h"
#include "tests/pipeline/schedules.h"

namespace gradwire::pipeline {
namespace {

using ::testing::HasSubstr;

Fault kind_of(const PipelineSchedule& schedule) {
  const auto found = find_fault(schedule);
  EXPECT_TRUE(found) << to_csv(schedule);
  return found ? found->fault : Fault::malformed;
}

TEST(PipelineVerifier, NamesEachFault) {
  const PipelineSchedule right = made("1f1b", options_of(3, 4));
  const auto with = [&](const std::function<void(PipelineSchedule&)>& change) {
    PipelineSchedule schedule = right;
    change(schedule);
    return schedule;
  };
  EXPECT_EQ(kind_of(with([](auto& s) { s.order[1][0].micro_batch = 4; })), Fault::malformed);
  EXPECT_EQ(kind_of(with([](auto& s) { s.order[1][0].stage = 2; })), Fault::malformed);
  EXPECT_EQ(kind_of(with([](auto& s) { s.edges.push_back({2, 1}); })), Fault::malformed);
  EXPECT_EQ(kind_of(with([](auto& s) { s.rank_of[2] = 3; })), Fault::malformed);
  EXPECT_EQ(kind_of(with([](auto& s) { s.receives_ahead = -1; })), Fault::malformed);
  EXPECT_EQ(kind_of(with([](auto& s) { s.order[1].pop_back(); })), Fault::incomplete);
  EXPECT_EQ(kind_of(with([](auto& s) { s.order[1].push_back(s.order[1][0]); })), Fault::incomplete);
  EXPECT_EQ(kind_of(with([](auto& s) { std::swap(s.order[2][0], s.order[2][1]); })),
            Fault::too_early);
  EXPECT_EQ(kind_of(with([](auto& s) { s.kept = 2; })), Fault::too_much);
}

TEST(PipelineVerifier, RefusesSumsInAnotherOrderThanThatOfOneProcess) {
  PipelineSchedule schedule = made("gpipe", options_of(2, 4));
  for (auto& order : schedule.order) std::reverse(order.begin() + 4, order.end());
  EXPECT_EQ(kind_of(schedule), Fault::wrong_order);
}

TEST(PipelineVerifier, RefusesGradientsOfInputsInAnotherOrder) {
  const auto of = [](const char* csv) { return value_or_throw(from_csv(csv, "a")); };
  EXPECT_FALSE(find_fault(of("0F0,0F1,0I0,0I1,0W0,0W1\n")));
  EXPECT_EQ(kind_of(of("0F0,0F1,0I1,0I0,0W0,0W1\n")), Fault::wrong_order);
}

TEST(PipelineVerifier, FindsRanksThatWaitForEachOther) {
  // Rank 1 wants the second forward first; rank 0 waits for the first backward before it.
  PipelineSchedule schedule = value_or_throw(from_csv("0F0,0B0,0F1,0B1\n1F1,1F0,1B0,1B1\n", "a"));
  const auto found = find_fault(schedule);
  ASSERT_TRUE(found);
  EXPECT_EQ(found->fault, Fault::deadlock);
  EXPECT_THAT(found->message, HasSubstr("1F1 on rank 1"));
  EXPECT_THAT(found->message, HasSubstr("0B0 on rank 0"));
}

TEST(PipelineVerifier, KnowsThatTwoBlockingSendsWaitForEachOther) {
  // The last forward of rank 0 and the first backward of rank 1 are sent at the same time.
  PipelineSchedule schedule = made("1f1b", options_of(2, 4));
  EXPECT_FALSE(find_fault(schedule));
  schedule.sends_in_flight = 0;
  schedule.receives_ahead = 0;
  EXPECT_EQ(kind_of(schedule), Fault::deadlock);
  schedule.receives_ahead = 1;
  EXPECT_FALSE(find_fault(schedule));
}

TEST(PipelineVerifier, FollowsSkipConnections) {
  // Stage 2 wants its micro-batches in another order than stage 1, but gets its data from 0 only.
  PipelineSchedule schedule =
      value_or_throw(from_csv("0F0,0F1,0B0,0B1\n1F0,1B0,1F1,1B1\n2F1,2F0,2B0,2B1\n", "a"));
  EXPECT_EQ(kind_of(schedule), Fault::deadlock);
  schedule.edges = {{0, 1}, {0, 2}};
  EXPECT_FALSE(find_fault(schedule));
  schedule.edges.push_back({1, 2});
  EXPECT_EQ(kind_of(schedule), Fault::deadlock);
}

/// A schedule with one change, in the tasks of a rank or in their order.
using Mutant = PipelineSchedule;

/// Changes one thing. Returns false if nothing changed.
bool mutate(Mutant& schedule, Random& random) {
  auto& order = schedule.order[random.below(schedule.order.size())];
  const std::size_t i = random.below(order.size());
  const std::size_t j = random.below(order.size());
  switch (random.below(5)) {
    case 0:
      std::swap(order[i], order[j]);
      return order[i] != order[j];
    case 1:
      order.erase(order.begin() + static_cast<std::ptrdiff_t>(i));
      return true;
    case 2:
      order.push_back(order[i]);
      return true;
    case 3:
      order[i].compute = static_cast<Compute>(random.below(4));
      return true;
    default:
      order[i].micro_batch =
          static_cast<int>(random.below(static_cast<std::uint64_t>(schedule.micro_batches)));
      return true;
  }
}

/// A second implementation of the rules: runs the ranks task by task. Returns true if each task
/// runs once, after its inputs, and each stage computes its gradients in order.
bool runs(const PipelineSchedule& schedule) {
  std::map<std::tuple<char, Stage, MicroBatch>, int> done;
  std::vector<std::size_t> next(schedule.order.size());
  std::vector<MicroBatch> sums(static_cast<std::size_t>(schedule.stages()), 0);
  std::vector<MicroBatch> inputs = sums;
  const auto may_run = [&](const Task& task) {
    const auto [what, s, i, delay] = task;
    const bool last = s + 1 == schedule.stages();
    if (what == Compute::forward) return s == 0 || done[{'F', s - 1, i}] > 0;
    if (what == Compute::backward_weight) return done[{'I', s, i}] > 0;
    return done[{'F', s, i}] > 0 && (last || done[{'I', s + 1, i}] > 0);
  };
  for (bool moved = true; moved;) {
    moved = false;
    for (std::size_t rank = 0; rank < next.size(); ++rank) {
      if (next[rank] == schedule.order[rank].size()) continue;
      const Task& task = schedule.order[rank][next[rank]];
      if (!may_run(task)) continue;
      ++next[rank];
      moved = true;
      const bool both = task.compute == Compute::backward;
      if (task.compute == Compute::forward) ++done[{'F', task.stage, task.micro_batch}];
      if (both || task.compute == Compute::backward_input) {
        ++done[{'I', task.stage, task.micro_batch}];
        if (inputs[static_cast<std::size_t>(task.stage)]++ != task.micro_batch) return false;
      }
      if (both || task.compute == Compute::backward_weight) {
        ++done[{'W', task.stage, task.micro_batch}];
        if (sums[static_cast<std::size_t>(task.stage)]++ != task.micro_batch) return false;
      }
    }
  }
  for (Stage s = 0; s < schedule.stages(); ++s) {
    for (MicroBatch i = 0; i < schedule.micro_batches; ++i) {
      for (const char kind : {'F', 'I', 'W'}) {
        if (done[{kind, s, i}] != 1) return false;
      }
    }
  }
  return std::ranges::equal(next, schedule.order, {}, {}, &std::vector<Task>::size);
}

TEST(PipelineVerifier, RefusesExactlyTheMutantsThatDoNotRun) {
  Random random(20261125);
  int refused = 0, accepted = 0;
  for (const std::string_view name : {"gpipe", "1f1b", "zero_bubble_h1", "zero_bubble"}) {
    for (int trial = 0; trial < 2000; ++trial) {
      Mutant mutant = made(name, options_of(2 + static_cast<int>(random.below(3)),
                                            2 + static_cast<int>(random.below(5))));
      mutant.kept = 0;
      if (!mutate(mutant, random)) continue;
      const bool right = runs(mutant);
      EXPECT_EQ(!find_fault(mutant), right) << name << '\n' << to_csv(mutant);
      ++(right ? accepted : refused);
    }
  }
  EXPECT_GT(refused, 4000);
  EXPECT_GT(accepted, 100);  // Tasks that may change places.
}

TEST(PipelineVerifier, KnowsTheWeightsOfEachRule) {
  const auto with = [](std::string_view name,
                       const std::function<void(PipelineSchedule&)>& change) {
    PipelineSchedule schedule = made(name, options_of(3, 4));
    change(schedule);
    return schedule;
  };
  // A copy less, or another staleness, than there is.
  EXPECT_EQ(kind_of(with("pipedream", [](auto& s) { --s.weight_bounds[0].kept; })),
            Fault::wrong_weights);
  EXPECT_EQ(kind_of(with("pipedream", [](auto& s) { --s.weight_bounds[1].staleness; })),
            Fault::wrong_weights);
  EXPECT_EQ(kind_of(with("pipedream", [](auto& s) { s.weight_bounds.clear(); })),
            Fault::wrong_weights);
  EXPECT_EQ(kind_of(with("pipedream", [](auto& s) { s.weight_bounds.pop_back(); })),
            Fault::malformed);
  EXPECT_EQ(kind_of(with("2bw", [](auto& s) { s.weight_bounds[2].kept = 1; })),
            Fault::wrong_weights);
  // Another rule than the order is for.
  EXPECT_EQ(kind_of(with("2bw", [](auto& s) { s.weights = WeightRule::flush; })),
            Fault::wrong_weights);
  EXPECT_EQ(kind_of(with("1f1b", [](auto& s) { s.weights = WeightRule::stash; })),
            Fault::wrong_weights);
  // The last micro-batches of a step come back two steps later: their weights are gone.
  const auto later = find_fault(with("2bw", [](auto& s) {
    for (Task& task : s.order[0]) task.delay += task.compute == Compute::backward ? 1 : 0;
  }));
  ASSERT_TRUE(later);
  EXPECT_EQ(later->fault, Fault::wrong_weights);
  EXPECT_THAT(later->message, HasSubstr("0F0 needs the weights after"));
  // A step earlier than its input.
  EXPECT_EQ(kind_of(with("pipedream", [](auto& s) { s.order[1][0].delay = -1; })),
            Fault::malformed);
  EXPECT_EQ(kind_of(with("pipedream", [](auto& s) { s.order[0][0].delay = 1; })), Fault::too_early);
  EXPECT_EQ(kind_of(with("2bw", [](auto& s) { s.order[0].back().delay = 2; })), Fault::wrong_order);
}

/// A second implementation of the rules for the weights: runs each rank's order for many steps, and
/// compares every micro-batch's version with the declared one.
bool keeps_its_versions(const PipelineSchedule& schedule) {
  constexpr int kRun = 12;
  const bool by_step = schedule.weights == WeightRule::double_buffer;
  for (Rank rank = 0; rank < schedule.ranks(); ++rank) {
    const int stale = schedule.weight_bounds[static_cast<std::size_t>(rank)].staleness;
    int through = 0;  // Micro-batches with gradients: they end in the order of the micro-batches.
    for (int period = 0; period < kRun; ++period) {
      for (const Task& task : schedule.order[static_cast<std::size_t>(rank)]) {
        const int step = period - task.delay;
        if (step < 0) continue;
        const int place = step * schedule.micro_batches + task.micro_batch;
        if (task.compute != Compute::forward) {
          if (through++ != place) return false;
        } else if (by_step) {
          if (through < (step - 1) * schedule.micro_batches) return false;
        } else if (through != std::max(0, place - stale) && step >= kRun / 2) {
          return false;
        }
      }
    }
  }
  return true;
}

/// Runs the ranks, which wait for each other, for some steps and until the pipeline is empty.
bool runs_and_drains(const PipelineSchedule& schedule) {
  constexpr int kRun = 9;
  PipelineSchedule unrolled = schedule;
  unrolled.micro_batches = kRun * schedule.micro_batches;
  for (auto& order : unrolled.order) {
    const std::vector<Task> period = std::exchange(order, {});
    for (int k = 0; k < kRun + max_delay(schedule); ++k) {
      for (Task task : period) {
        const int step = k - std::exchange(task.delay, 0);
        task.micro_batch += step * schedule.micro_batches;
        if (step >= 0 && step < kRun) order.push_back(task);
      }
    }
  }
  return runs(unrolled);
}

bool mutate_delay(Mutant& schedule, Random& random) {
  auto& order = schedule.order[random.below(schedule.order.size())];
  Task& task = order[random.below(order.size())];
  const int before = task.delay;
  task.delay = static_cast<int>(random.below(3));
  return task.delay != before;
}

TEST(PipelineVerifier, RefusesExactlyTheAsynchronousMutantsThatUseOtherWeights) {
  Random random(20261126);
  int refused = 0, accepted = 0, wrong_weights = 0;
  for (const std::string_view name : {"pipedream", "2bw"}) {
    for (int trial = 0; trial < 2000; ++trial) {
      Mutant mutant = made(name, options_of(2 + static_cast<int>(random.below(3)),
                                            2 + static_cast<int>(random.below(5))));
      mutant.kept = 0;
      if (!(random.below(3) == 0 ? mutate_delay(mutant, random) : mutate(mutant, random))) continue;
      const auto found = find_fault(mutant);
      // A backward of one micro-batch in the place of another's is refused as incomplete or late.
      const bool right = runs_and_drains(mutant) && keeps_its_versions(mutant);
      EXPECT_EQ(!found, right) << name << '\n' << to_csv(mutant) << (found ? found->message : "");
      ++(right ? accepted : refused);
      wrong_weights += found && found->fault == Fault::wrong_weights;
    }
  }
  EXPECT_GT(refused, 2000);
  EXPECT_GT(accepted, 20);
  EXPECT_GT(wrong_weights, 50);
}

}  // namespace
}  // namespace gradwire::pipeline
