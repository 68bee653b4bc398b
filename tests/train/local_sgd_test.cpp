#include "gradwire/train/local_sgd/local_sgd.h"

#include <barrier>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "gradwire/base/error.h"
#include "gradwire/train/optim/delayed_nesterov.h"
#include "gradwire/train/servers/served_local_steps.h"
#include "tests/support/torch/loopback.h"
#include "tests/support/torch/thread_group.h"

namespace gradwire::step {

/// For the names of tests.
inline void PrintTo(const LocalStepsConfig& config, std::ostream* out) {
  *out << config.steps << " steps, outer rate " << config.outer_learning_rate << " and momentum "
       << config.outer_momentum << ", " << config.fragments << " fragments, overlap "
       << config.overlap_steps << ", mixing " << config.mixing << ", codec " << config.codec;
}

}  // namespace gradwire::step

namespace gradwire::test {
namespace {

using ::testing::AllOf;
using ::testing::Each;
using ::testing::HasSubstr;

constexpr double kInnerRate = 0.1;
constexpr int kRanks = 3;

/// Four parameters of different sizes, the same on all ranks.
std::vector<torch::Tensor> first_parameters(torch::ScalarType type = torch::kFloat64) {
  auto generator = at::detail::createCPUGenerator(7);
  std::vector<torch::Tensor> parameters;
  for (const auto& shape : std::vector<std::vector<std::int64_t>>{{4, 5}, {5}, {3, 3, 2}, {20}}) {
    parameters.push_back(torch::randn(shape, generator, torch::kFloat64).to(type));
  }
  return parameters;
}

/// The gradient of a rank's batch: towards the rank's own moving target.
torch::Tensor gradient_of(const torch::Tensor& parameter, int rank, std::int64_t step) {
  const auto goal = torch::full_like(parameter, rank + 0.1 * static_cast<double>(step % 5));
  return parameter - goal;
}

void inner_step(std::vector<torch::Tensor>& parameters, int rank, std::int64_t step) {
  for (auto& parameter : parameters) {
    parameter.sub_(gradient_of(parameter, rank, step), kInnerRate);
  }
}

std::vector<NamedTensor> named(const std::vector<torch::Tensor>& parameters) {
  std::vector<NamedTensor> list;
  for (const auto& parameter : parameters) {
    list.push_back({"p" + std::to_string(list.size()), parameter});
  }
  return list;
}

LocalSgdOptions options_with(const step::LocalStepsConfig& steps) {
  LocalSgdOptions options;
  options.steps = steps;
  return options;
}

/// Each rank's parameters after `steps` steps.
using Ranks = std::vector<std::vector<torch::Tensor>>;

/// The papers' algorithm for all ranks at once, one parameter after the other: the expected result
/// of LocalSgd without synchronize().
Ranks reference(const step::LocalStepsConfig& config, int ranks, std::int64_t steps) {
  Ranks own(static_cast<std::size_t>(ranks));
  for (auto& parameters : own) parameters = first_parameters();
  const std::vector<std::int64_t> sizes{20, 5, 18, 20};
  const auto fragments = step::plan_fragments(sizes, config.fragments);
  for (std::size_t i = 0; i < sizes.size(); ++i) {
    auto outer = first_parameters()[i];
    auto velocity = torch::zeros_like(outer);
    torch::Tensor difference;
    const auto turn =
        (static_cast<std::int64_t>(fragments[i]) + 1) * config.steps / config.fragments;
    const auto due = [&](std::int64_t t) { return t >= turn && (t - turn) % config.steps == 0; };
    for (std::int64_t t = 1; t <= steps; ++t) {
      for (int r = 0; r < ranks; ++r) {
        auto& mine = own[static_cast<std::size_t>(r)][i];
        mine.sub_(gradient_of(mine, r, t), kInnerRate);
      }
      if (due(t)) {
        difference = torch::zeros_like(outer);
        for (const auto& parameters : own) difference += (outer - parameters[i]) / ranks;
      }
      if (!due(t - config.overlap_steps)) continue;
      velocity = config.outer_momentum * velocity + difference;
      outer = outer - config.outer_learning_rate * (difference + config.outer_momentum * velocity);
      for (auto& parameters : own) {
        parameters[i].copy_(config.mixing * parameters[i] + (1 - config.mixing) * outer);
      }
    }
  }
  return own;
}

/// The results of reference(), by LocalSgd on threads.
Ranks trained_locally(const step::LocalStepsConfig& config, int ranks, std::int64_t steps,
                      bool synchronize) {
  Ranks result(static_cast<std::size_t>(ranks));
  run_on_threads(ranks, [&](const auto& group) {
    auto parameters = first_parameters();
    LocalSgd local(named(parameters), group, options_with(config));
    for (std::int64_t t = 1; t <= steps; ++t) {
      inner_step(parameters, group->getRank(), t);
      local.step();
    }
    if (synchronize) local.synchronize();
    result[static_cast<std::size_t>(group->getRank())] = parameters;
  });
  return result;
}

double difference(const std::vector<torch::Tensor>& a, const std::vector<torch::Tensor>& b) {
  double largest = 0;
  for (std::size_t i = 0; i < a.size(); ++i) {
    largest = std::max(largest, (a[i] - b[i]).abs().max().template item<double>());
  }
  return largest;
}

TEST(LocalSgd, WithOneStepIsSynchronousSgd) {
  const auto ours = trained_locally({.steps = 1}, kRanks, 20, false);
  auto expected = first_parameters();
  for (std::int64_t t = 1; t <= 20; ++t) {
    for (auto& parameter : expected) {
      auto mean = torch::zeros_like(parameter);
      for (int rank = 0; rank < kRanks; ++rank) mean += gradient_of(parameter, rank, t) / kRanks;
      parameter.sub_(mean, kInnerRate);
    }
  }
  // Not bitwise: (w - g1 + w - g2) / 2 rounds differently than w - (g1 + g2) / 2.
  EXPECT_LT(difference(ours[0], expected), 1e-13);
  EXPECT_EQ(difference(ours[0], ours[2]), 0);
}

struct Definition : ::testing::TestWithParam<step::LocalStepsConfig> {};

TEST_P(Definition, LocalSgdIsThePapersAlgorithm) {
  const auto expected = reference(GetParam(), kRanks, 31);
  const auto ours = trained_locally(GetParam(), kRanks, 31, false);
  for (std::size_t r = 0; r < ours.size(); ++r) {
    EXPECT_LT(difference(ours[r], expected[r]), 1e-12) << r;
  }
  EXPECT_GT(difference(expected[0], expected[1]), 1e-3) << "there must be something to average";
}

INSTANTIATE_TEST_SUITE_P(
    Of, Definition,
    ::testing::Values(
        step::LocalStepsConfig{.steps = 4},
        step::LocalStepsConfig{.steps = 5, .outer_learning_rate = 0.7, .outer_momentum = 0.9},
        step::LocalStepsConfig{.steps = 6, .outer_momentum = 0.5, .fragments = 3},
        step::LocalStepsConfig{.steps = 7, .fragments = 2, .overlap_steps = 2, .mixing = 0.5},
        step::LocalStepsConfig{.steps = 9,
                               .outer_learning_rate = 0.7,
                               .outer_momentum = 0.9,
                               .fragments = 3,
                               .overlap_steps = 1,
                               .mixing = 0.25},
        step::LocalStepsConfig{.steps = 8, .overlap_steps = 5, .mixing = 0}));

/// The results of reference(), by ServedLocalSteps on threads.
Ranks trained_with_servers(const step::LocalStepsConfig& config, const ServersOptions& servers,
                           int ranks, std::int64_t steps) {
  Ranks result(static_cast<std::size_t>(ranks));
  run_on_threads(ranks, [&](const auto& group) {
    auto parameters = first_parameters();
    if (group->getRank() > 0) {
      for (auto& parameter : parameters) parameter.zero_();  // They get worker 0's.
    }
    ServedLocalSteps local(named(parameters), {.process_group = group, .servers = servers}, config);
    for (std::int64_t t = 1; t <= steps; ++t) {
      inner_step(parameters, group->getRank(), t);
      local.step();
    }
    result[static_cast<std::size_t>(group->getRank())] = parameters;
  });
  return result;
}

TEST(ServedLocalSteps, AreLocalSgdInModeSync) {
  for (const step::LocalStepsConfig& config :
       {step::LocalStepsConfig{.steps = 4},
        step::LocalStepsConfig{.steps = 5, .outer_learning_rate = 0.7, .outer_momentum = 0.9}}) {
    for (const int servers : {1, 2, 0}) {
      const auto expected = reference(config, kRanks, 31);
      const auto served = trained_with_servers(config, {.count = servers}, kRanks, 31);
      for (std::size_t r = 0; r < served.size(); ++r) {
        EXPECT_LT(difference(served[r], expected[r]), 1e-12) << r;
      }
    }
  }
}

TEST(ServedLocalSteps, OfOneWorkerAreTheSameInEveryMode) {
  const step::LocalStepsConfig config{
      .steps = 3, .outer_learning_rate = 0.7, .outer_momentum = 0.9};
  const auto expected = reference(config, 1, 20);
  for (const std::string mode : {"sync", "ssp:2", "async"}) {
    const auto served = trained_with_servers(config, {.mode = mode}, 1, 20);
    EXPECT_LT(difference(served[0], expected[0]), 1e-12) << mode;
  }
}

TEST(ServedLocalSteps, OfAllWorkersReachTheMeanOfTheirGoals) {
  std::barrier equally_fast(kRanks);
  run_on_threads(kRanks, [&](const auto& group) {
    auto parameters = first_parameters();
    ServedLocalSteps local(named(parameters),
                           {.process_group = group, .servers = {.mode = "async"}},
                           {.steps = 4, .outer_learning_rate = 0.7, .outer_momentum = 0.5});
    for (std::int64_t t = 1; t <= 400; ++t) {
      inner_step(parameters, group->getRank(), t);
      local.step();
      equally_fast.arrive_and_wait();
    }
    local.synchronize();
    // Goals are a rank's number and 0.0 to 0.4; the last differences pull to one of them.
    EXPECT_NEAR(parameters[0].mean().template item<double>(), 1.2, 0.4);
    EXPECT_GT(local.served().report().staleness().mean(), 0.5);
  });
}

TEST(ServedLocalSteps, PushWhatAShareOfTheStepsHasChanged) {
  run_on_threads(1, [](const auto& group) {
    auto parameters = first_parameters();
    ServedLocalSteps local(named(parameters), {.process_group = group}, {.steps = 8});
    const auto units = [&] { return local.served().report().updates(); };
    const auto steps = [&](int count) {
      for (int t = 1; t <= count; ++t) inner_step(parameters, 0, t), local.step();
    };
    steps(7);
    EXPECT_EQ(units(), 0);
    steps(1);
    const std::int64_t one = units();
    EXPECT_GT(one, 0);
    local.set_share(0.25);
    steps(4);
    EXPECT_EQ(units(), 3 * one);
    local.set_share(0.001);
    steps(2);
    EXPECT_EQ(units(), 5 * one);
    local.set_share(1);
    steps(3);
    local.flush();
    local.flush();
    EXPECT_EQ(units(), 6 * one);
  });
}

TEST(ServedLocalSteps, SwapShowsTheOuterParametersForAWhile) {
  run_on_threads(1, [](const auto& group) {
    auto parameters = first_parameters();
    ServedLocalSteps local(named(parameters), {.process_group = group}, {.steps = 4});
    for (int t = 1; t <= 5; ++t) inner_step(parameters, 0, t), local.step();
    const torch::Tensor own = parameters[0].clone();
    local.swap();
    EXPECT_GT((parameters[0] - own).abs().max().template item<double>(), 1e-3);
    local.swap();
    EXPECT_EQ((parameters[0] - own).abs().max().template item<double>(), 0);
    for (int t = 6; t <= 8; ++t) inner_step(parameters, 0, t), local.step();
    local.synchronize();
    EXPECT_LT(difference(parameters, reference({.steps = 4}, 1, 8)[0]), 1e-12);
  });
}

TEST(ServedLocalSteps, RefuseWhatServersDoNotHave) {
  const auto error = [](const step::LocalStepsConfig& config) {
    return errors_on_threads(1, [&](const auto& group) {
      auto parameters = first_parameters();
      ServedLocalSteps(named(parameters), {.process_group = group}, config);
    })[0];
  };
  EXPECT_THAT(error({.steps = 4, .fragments = 2}), HasSubstr("fragments is incompatible"));
  EXPECT_THAT(error({.steps = 4, .overlap_steps = 2}), HasSubstr("overlap_steps is incompatible"));
  EXPECT_THAT(error({.steps = 4, .mixing = 0.5}), HasSubstr("mixing is incompatible"));
  EXPECT_THAT(error({.steps = 4, .codec = "auto"}), HasSubstr("need a codec of single values"));
}

/// Algorithm 3 of arXiv:2401.09135, for one number.
TEST(DelayedNesterov, ChangesItsMomentumAtEveryNth) {
  for (const std::int64_t every : {1, 3}) {
    torch::Tensor weight = torch::full({1}, 5.0, torch::kFloat64).set_requires_grad(true);
    DelayedNesterov optimizer({weight}, DelayedNesterovOptions(0.7).momentum(0.9).every(every));
    const auto n = static_cast<double>(every);
    double expected = 5, momentum = 0, sum = 0;
    for (int t = 1; t <= 10; ++t) {
      const double difference = 1.0 / t;
      weight.mutable_grad() = torch::full({1}, difference, torch::kFloat64);
      optimizer.step();
      sum += difference;
      expected -= 0.7 * difference / n;
      if (t % every == 0) {
        momentum = 0.9 * momentum + std::exchange(sum, 0) / n;
        expected -= 0.7 * 0.9 * momentum;
      }
      EXPECT_NEAR(weight.item<double>(), expected, 1e-12) << t;
    }
  }
  const torch::Tensor weight = torch::zeros({1});
  EXPECT_THROW(DelayedNesterov({weight}, DelayedNesterovOptions(0.7).every(0)), Exception);
  EXPECT_THROW(DelayedNesterov({weight}, DelayedNesterovOptions(0)), Exception);
  EXPECT_THROW(DelayedNesterov({weight}, DelayedNesterovOptions(1).momentum(1)), Exception);
}

TEST(LocalSgd, RanksAreEqualAfterAFullSynchronization) {
  const step::LocalStepsConfig streaming{.steps = 6,
                                         .outer_learning_rate = 0.7,
                                         .outer_momentum = 0.9,
                                         .fragments = 2,
                                         .overlap_steps = 2,
                                         .mixing = 0.5};
  for (const std::int64_t steps : {0, 1, 13, 14, 15, 18}) {
    const auto ranks = trained_locally(streaming, kRanks, steps, true);
    EXPECT_EQ(difference(ranks[0], ranks[1]), 0) << steps;
    EXPECT_EQ(difference(ranks[0], ranks[2]), 0) << steps;
  }
  const auto plain = trained_locally({.steps = 4}, kRanks, 8, false);
  EXPECT_EQ(difference(plain[0], plain[1]), 0);
}

TEST(LocalSgd, SynchronizeIsIdempotent) {
  run_on_threads(2, [](const auto& group) {
    auto parameters = first_parameters();
    LocalSgd local(named(parameters), group, options_with({.steps = 3, .outer_momentum = 0.9}));
    inner_step(parameters, group->getRank(), 1);
    local.step();
    local.synchronize();
    const auto once = parameters[0].clone();
    local.synchronize();
    EXPECT_TRUE(parameters[0].equal(once));
    EXPECT_EQ(local.stats().synchronized, 1);
  });
}

TEST(LocalSgd, BeginsWithTheParametersOfRank0AndRefusesOtherShapes) {
  run_on_threads(2, [](const auto& group) {
    auto parameter = torch::full({3}, group->getRank() + 1.0);
    LocalSgd local({{"w", parameter}}, group, options_with({}));
    EXPECT_TRUE(parameter.equal(torch::ones({3})));
  });
  const auto errors = errors_on_threads(2, [](const auto& group) {
    LocalSgd local({{"w", torch::ones({3 + group->getRank()})}}, group, options_with({}));
  });
  EXPECT_THAT(errors, Each(AllOf(HasSubstr("LocalSgd: "), HasSubstr("'w' of shape [3]"),
                                 HasSubstr("[4]"))));
}

TEST(LocalSgd, OneRankEqualsTheInnerOptimizer) {
  const auto ours = trained_locally({.steps = 4}, 1, 10, true);
  auto expected = first_parameters();
  for (std::int64_t t = 1; t <= 10; ++t) inner_step(expected, 0, t);
  EXPECT_LT(difference(ours[0], expected), 1e-13);
}

TEST(LocalSgd, SendsAnHthOfTheBytes) {
  constexpr std::int64_t kSteps = 12;
  std::vector<double> sent;
  for (const std::int64_t h : {1, 4, 12}) {
    for (const std::int64_t fragments : {1, 2}) {
      if (fragments > h) continue;
      run_on_loopback(2, [&](const auto& group) {
        auto parameters = first_parameters(torch::kFloat32);
        LocalSgd local(named(parameters), group,
                       options_with({.steps = h, .fragments = fragments}));
        const auto communicator = communicator_of(*group);
        const auto before = communicator->payload_bytes_sent();
        for (std::int64_t t = 1; t <= kSteps; ++t) local.step();
        // With two ranks, each sends as many bytes as an all-reduce has: 2(P-1)/P = 1.
        EXPECT_EQ(communicator->payload_bytes_sent() - before, 63 * 4 * kSteps / h);
        EXPECT_EQ(local.stats().bytes, 63 * 4 * kSteps / h);
      });
    }
  }
}

/// Trains over loopback; if `stop`, through a checkpoint at half time. Returns each rank's
/// parameters.
Ranks trained_with_codec(const step::LocalStepsConfig& config, bool stop) {
  Ranks result(2);
  run_on_loopback(2, [&](const auto& group) {
    const int rank = group->getRank();
    auto parameters = first_parameters(torch::kFloat32);
    auto options = options_with(config);
    options.codec_min_elements = 1;
    auto local = std::make_unique<LocalSgd>(named(parameters), group, options);
    for (std::int64_t t = 1; t <= 27; ++t) {
      inner_step(parameters, rank, t);
      local->step();
      if (!stop || t != 13) continue;
      std::map<std::string, torch::Tensor> saved;
      for (const auto& [name, tensor] : local->state()) saved[name] = tensor;
      const auto kept = parameters;
      parameters = first_parameters(torch::kFloat32);
      local = std::make_unique<LocalSgd>(named(parameters), group, options);
      local->load_state(saved);
      for (std::size_t i = 0; i < kept.size(); ++i) parameters[i].copy_(kept[i]);
    }
    result[static_cast<std::size_t>(rank)] = parameters;
  });
  return result;
}

struct Saving : ::testing::TestWithParam<step::LocalStepsConfig> {};

TEST_P(Saving, GoesOnWithTheSameBits) {
  const auto straight = trained_with_codec(GetParam(), false);
  const auto stopped = trained_with_codec(GetParam(), true);
  EXPECT_EQ(difference(straight[0], stopped[0]), 0);
  EXPECT_EQ(difference(straight[1], stopped[1]), 0);
}

INSTANTIATE_TEST_SUITE_P(
    Of, Saving,
    ::testing::Values(step::LocalStepsConfig{.steps = 5, .outer_momentum = 0.9},
                      // In flight when it is saved, after step 13.
                      step::LocalStepsConfig{
                          .steps = 6, .outer_momentum = 0.9, .overlap_steps = 3, .mixing = 0.5},
                      step::LocalStepsConfig{.steps = 3, .fragments = 2, .codec = "int8"},
                      step::LocalStepsConfig{.steps = 6, .overlap_steps = 3, .codec = "one_bit"}));

TEST(LocalSgd, ThroughACodecRanksStayEqualAndNearTheExactMean) {
  const auto exact = trained_with_codec({.steps = 3}, false);
  const auto coded = trained_with_codec({.steps = 3, .codec = "int8"}, false);
  EXPECT_EQ(difference(coded[0], coded[1]), 0);
  EXPECT_LT(difference(coded[0], exact[0]), 0.05);
  EXPECT_GT(difference(coded[0], exact[0]), 0) << "a codec that loses nothing is none";
}

std::string error_of_load(const std::function<void(std::map<std::string, torch::Tensor>&)>& spoil) {
  const auto errors = errors_on_threads(1, [&](const auto& group) {
    auto parameters = first_parameters();
    LocalSgd local(named(parameters), group, options_with({.steps = 2, .outer_momentum = 0.9}));
    std::map<std::string, torch::Tensor> saved;
    for (const auto& [name, tensor] : local.state()) saved[name] = tensor;
    spoil(saved);
    local.load_state(saved);
  });
  return errors[0];
}

TEST(LocalSgd, WrongStateIsAnErrorThatNamesTheParameter) {
  EXPECT_EQ(error_of_load([](auto&) {}), "");
  EXPECT_THAT(error_of_load([](auto& saved) { saved["p1.outer_velocity"] = torch::ones({6}); }),
              AllOf(HasSubstr("'p1.outer_velocity'"), HasSubstr("[6]"), HasSubstr("[5]")));
  EXPECT_THAT(error_of_load([](auto& saved) { saved.erase("p2.outer"); }),
              HasSubstr("no 'p2.outer'"));
  EXPECT_THAT(error_of_load([](auto& saved) { saved.erase("local_steps.position"); }),
              HasSubstr("local_steps.position"));
}

TEST(LocalSgd, ACodecNeedsAGroupOfOurs) {
  const auto errors = errors_on_threads(2, [](const auto& group) {
    auto parameters = first_parameters();
    LocalSgd local(named(parameters), group, options_with({.steps = 2, .codec = "int8"}));
  });
  EXPECT_THAT(errors, Each(HasSubstr("gradwire::init()")));
}

}  // namespace
}  // namespace gradwire::test
