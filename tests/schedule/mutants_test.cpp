#include <map>
#include <set>
#include <string>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "gradwire/schedule/catalogue.h"
#include "gradwire/schedule/verify/verifier.h"
#include "tests/schedule/editable.h"
#include "tests/schedule/mutations.h"
#include "tests/schedule/printing.h"
#include "tests/schedule/random_execution.h"

/// Tests the verifier with schedules that it must refuse: correct ones with one change.
namespace gradwire::schedule {
namespace {

using test::change_something;
using test::EditableSchedule;
using test::execute_at_random;
using test::harmful_mutations;
using test::Mutation;

Schedule make(const Algorithm& algorithm, int ranks, Random& random) {
  const auto any_rank = [&] {
    return static_cast<Rank>(random.below(static_cast<std::uint64_t>(ranks)));
  };
  return algorithm.make(topology::Topology::uniform(ranks),
                        {algorithm.collective, any_rank(), any_rank()});
}

std::string title(const Algorithm& algorithm) {
  return std::string(name_of(algorithm.collective)) + "/" + std::string(algorithm.name);
}

/// Runs a schedule in random orders, with separate input and output and, if allowed, in place.
/// Returns the first problem.
std::string execute_often(const Schedule& schedule, int times, Random& random) {
  const Collective collective = schedule.spec.collective;
  const bool may_alias = collective == Collective::all_reduce ||
                         collective == Collective::all_gather || collective == Collective::reduce;
  for (int i = 0; i < times; ++i) {
    std::string problem = execute_at_random(schedule, may_alias && i % 2 == 1, random);
    if (!problem.empty()) return problem;
  }
  return "";
}

class MutantsOf : public testing::TestWithParam<Mutation> {};

TEST_P(MutantsOf, AreRefusedForTheRightReason) {
  const Mutation& mutation = GetParam();
  Random random(7);
  std::map<std::string, int> made;
  for (const Algorithm& algorithm : algorithm_catalogue()) {
    for (int ranks : {1, 2, 3, 4, 5, 6, 8}) {
      for (int repetition = 0; repetition < 8; ++repetition) {
        EditableSchedule mutant(make(algorithm, ranks, random));
        if (!mutation.apply(mutant, random)) continue;
        ++made[title(algorithm)];
        const auto finding = find_fault(mutant.build());
        ASSERT_TRUE(finding) << mutation.name << " survives in " << title(algorithm) << " of "
                             << ranks << " ranks, repetition " << repetition;
        EXPECT_THAT(mutation.faults, testing::Contains(finding->fault)) << finding->message;
        EXPECT_THAT(finding->message, testing::HasSubstr(algorithm.name));
      }
    }
  }
  EXPECT_FALSE(made.empty()) << "no algorithm has a place for it";
}

std::string test_name(const testing::TestParamInfo<Mutation>& tested) {
  std::string name(tested.param.name);
  std::ranges::replace(name, ' ', '_');
  return name;
}

INSTANTIATE_TEST_SUITE_P(Mutations, MutantsOf, testing::ValuesIn(harmful_mutations()), test_name);

TEST(Mutants, CoverEveryAlgorithmAndFault) {
  Random random(11);
  std::map<std::string, std::set<std::string_view>> kinds;
  std::set<Fault> faults;
  for (const Algorithm& algorithm : algorithm_catalogue()) {
    for (const Mutation& mutation : harmful_mutations()) {
      for (int repetition = 0; repetition < 20; ++repetition) {
        EditableSchedule mutant(make(algorithm, 4, random));
        if (!mutation.apply(mutant, random)) continue;
        kinds[title(algorithm)].insert(mutation.name);
        faults.insert(find_fault(mutant.build()).value().fault);
      }
    }
  }
  EXPECT_EQ(faults.size(), 7u);
  for (const Algorithm& algorithm : algorithm_catalogue()) {
    const std::size_t enough = algorithm.collective == Collective::all_reduce ? 24 : 14;
    EXPECT_GE(kinds[title(algorithm)].size(), enough) << title(algorithm);
  }
}

/// The verifier and random execution are independent: a schedule that the verifier accepts must not
/// fail in execution, whatever was changed.
TEST(Mutants, AcceptedOnesRunRightInAnyOrder) {
  Random random(13);
  int accepted = 0;
  int refused = 0;
  for (const Algorithm& algorithm : algorithm_catalogue()) {
    for (int repetition = 0; repetition < 600; ++repetition) {
      EditableSchedule mutant(make(algorithm, static_cast<int>(random.between(2, 5)), random));
      for (auto changes = random.between(1, 2); changes > 0; --changes) {
        change_something(mutant, random);
      }
      const Schedule schedule = mutant.build();
      const auto finding = find_fault(schedule);
      ++(finding ? refused : accepted);
      if (finding) continue;
      ASSERT_EQ(execute_often(schedule, 12, random), "") << title(algorithm) << " " << repetition;
    }
  }
  EXPECT_GT(accepted, 500);
  EXPECT_GT(refused, 500);
}

/// Otherwise the tests above would prove nothing.
TEST(RandomExecution, BreaksWhatIsBroken) {
  const std::set<std::string_view> timing{"send too early",      "reduce too early",
                                          "make a receive wait", "share a scratch slot",
                                          "wait in a circle",    "finish early"};
  Random random(17);
  for (const Mutation& mutation : harmful_mutations()) {
    if (!timing.contains(mutation.name)) continue;
    int made = 0;
    int broken = 0;
    for (const Algorithm& algorithm : algorithm_catalogue()) {
      for (int repetition = 0; repetition < 5; ++repetition) {
        EditableSchedule mutant(make(algorithm, 4, random));
        if (!mutation.apply(mutant, random)) continue;
        ++made;
        broken += execute_often(mutant.build(), 40, random).empty() ? 0 : 1;
      }
    }
    EXPECT_GT(made, 0) << mutation.name;
    // Not all of them: an order that breaks it may be rare, or a wait may be harmless in this case.
    EXPECT_GT(10 * broken, 6 * made) << mutation.name << ": " << broken << " of " << made;
  }
}

TEST(RandomExecution, FindsNothingWrongWithTheAlgorithms) {
  Random random(19);
  for (const Algorithm& algorithm : algorithm_catalogue()) {
    for (int ranks = 1; ranks <= 7; ++ranks) {
      const Schedule schedule = make(algorithm, ranks, random);
      EXPECT_EQ(execute_often(schedule, 20, random), "") << title(algorithm) << " " << ranks;
    }
  }
}

}  // namespace
}  // namespace gradwire::schedule
