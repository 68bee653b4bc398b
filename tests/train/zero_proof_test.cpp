#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "gradwire/train/optim/layerwise.h"
#include "gradwire/train/optim/ranger_lars.h"
#include "gradwire/train/optim/rectified_adam.h"
#include "gradwire/train/optim/yogi.h"
#include "tests/support/torch/loopback.h"
#include "tests/support/torch/thread_group.h"
#include "tests/train/zero_model.h"

namespace gradwire::test {
namespace {

template <class Optimizer, class Options>
OptimizerFactory factory(const Options& options) {
  return [options](std::vector<torch::Tensor> parameters) {
    return std::make_unique<Optimizer>(std::move(parameters), options);
  };
}

/// Vectors are not decayed, the head has a larger rate, and the convolution is in no group.
template <class Optimizer, class Options>
OptimizerFactory with_groups(const Options& options) {
  return [options](const std::vector<NamedTensor>& parameters) {
    Options undecayed = options;
    undecayed.weight_decay(0);
    Options faster = options;
    faster.set_lr(3 * options.get_lr());
    std::vector<torch::optim::OptimizerParamGroup> groups;
    for (const Options& each : {options, undecayed, faster}) {
      groups.emplace_back(std::vector<torch::Tensor>(), std::make_unique<Options>(each));
    }
    for (const auto& [name, tensor] : parameters) {
      if (name.starts_with("conv")) continue;
      const bool is_head = name.starts_with("head.");
      groups[is_head ? 2 : tensor.dim() > 1 ? 0 : 1].params().push_back(tensor);
    }
    return std::make_unique<Optimizer>(std::move(groups), options);
  };
}

OptimizerFactory grouped_factory_of(const std::string& name) {
  namespace optim = torch::optim;
  if (name == "sgd") {
    return with_groups<optim::SGD>(optim::SGDOptions(0.1).momentum(0.9).weight_decay(0.05));
  }
  if (name == "adamw") {
    return with_groups<optim::AdamW>(optim::AdamWOptions(0.01).weight_decay(0.1));
  }
  if (name == "adagrad") {
    return with_groups<optim::Adagrad>(
        optim::AdagradOptions(0.01).weight_decay(0.1).initial_accumulator_value(0.1));
  }
  auto options = LambOptions(0.01);
  options.weight_decay(0.1);
  return with_groups<Lamb>(options);
}

OptimizerFactory factory_of(const std::string& name, bool has_groups) {
  if (has_groups) return grouped_factory_of(name);
  namespace optim = torch::optim;
  if (name == "sgd") return factory<optim::SGD>(optim::SGDOptions(0.1).momentum(0.9));
  if (name == "adam") return factory<optim::Adam>(optim::AdamOptions(0.01));
  if (name == "adamw") {
    return factory<optim::AdamW>(optim::AdamWOptions(0.01).weight_decay(0.1));
  }
  if (name == "rmsprop") return factory<optim::RMSprop>(optim::RMSpropOptions(0.01));
  if (name == "adagrad") return factory<optim::Adagrad>(optim::AdagradOptions(0.01));
  if (name == "lars") {
    auto options = LarsOptions(1);
    options.weight_decay(1e-3).trust_coefficient(0.02);
    return factory<Lars>(options);
  }
  if (name == "radam") return factory<RAdam>(RAdamOptions(0.01));
  if (name == "yogi") return factory<Yogi>(YogiOptions(0.01));
  if (name == "ranger_lars") {
    return factory<RangerLars>(RangerLarsOptions(0.01).weight_decay(1e-3).lookahead_steps(3));
  }
  auto options = LambOptions(0.01);
  options.weight_decay(1e-3);
  return factory<Lamb>(options);
}

struct Way {
  std::string optimizer = "adam";
  int stage = 0;  ///< 0: DataParallel.
  int parts = 1;
  double max_norm = 0;
  step::Overlap overlap = step::Overlap::full;
  bool in_backward = false;  ///< ZeRO steps in backward.
  bool has_groups = false;
  /// float64 where additions have another order: rounding errors, which training amplifies, are
  /// then small enough for 1e-6 to detect different arithmetic.
  torch::ScalarType type = torch::kFloat32;
};

constexpr int kSteps = 50;
using RunOnRanks = std::function<void(int, const std::function<void(const ProcessGroup&)>&)>;

Values train_data_parallel(const ProcessGroup& group, const Way& way) {
  ZeroNet net;
  initialise(*net, 3);
  net->to(way.type);
  std::vector<torch::Tensor> parameters;  // Each once: one has two names.
  for (const auto& [name, tensor] : trainable_parameters(*net)) parameters.push_back(tensor);
  DataParallel model(net, {.process_group = group,
                           .find_unused_parameters = true,
                           .optimizer = factory_of(way.optimizer, way.has_groups),
                           .overlap = step::Overlap::backward});
  train_on_tasks(model, kSteps, way.parts, [&] {
    if (way.max_norm > 0) torch::nn::utils::clip_grad_norm_(parameters, way.max_norm);
    model.step();
  });
  return values_of(*net);
}

Values train_zero(const ProcessGroup& group, const Way& way) {
  ZeroNet net;
  // Rank 0's seed determines the result.
  initialise(*net, static_cast<std::uint64_t>(3 + group->getRank()));
  net->to(way.type);
  Zero model(net, {.process_group = group,
                   .stage = way.stage,
                   .optimizer = factory_of(way.optimizer, way.has_groups),
                   .max_grad_norm = way.max_norm,
                   .bucket_cap_mb = 0.001,
                   .overlap = way.overlap,
                   .min_block_elements = 0,
                   .prefetch_elements = 400});
  const auto after = [&] {
    if (!way.in_backward) model.step();
  };
  const auto before = [&] {
    if (way.in_backward) model.step_in_backward();
  };
  train_on_tasks(model, kSteps, way.parts, after, before);
  model.consolidate();
  return values_of(*net);
}

std::vector<Values> train(int ranks, const Way& way, const RunOnRanks& run = run_on_threads) {
  std::vector<Values> results(static_cast<std::size_t>(ranks));
  run(ranks, [&](const ProcessGroup& group) {
    auto& result = results[static_cast<std::size_t>(group->getRank())];
    result = way.stage == 0 ? train_data_parallel(group, way) : train_zero(group, way);
  });
  for (const auto& result : results) EXPECT_EQ(difference(result, results[0]), 0);
  return results;
}

double difference_from_data_parallel(int ranks, Way way, const RunOnRanks& run = run_on_threads) {
  auto zero = train(ranks, way, run)[0];
  way.stage = 0;
  auto whole = train(ranks, way, run)[0];
  EXPECT_GT(whole.at("head.weight").abs().max().item<double>(), 0.1);
  // DataParallel does not decay unused parameters, whereas here their gradient is zero.
  for (const char* name : {"never.weight", "never.bias"}) {
    if (way.optimizer == "sgd" && !way.has_groups) continue;
    if (way.optimizer == "adam") continue;
    zero.erase(name);
    whole.erase(name);
  }
  return difference(zero, whole);
}

struct ZeroProof : ::testing::TestWithParam<std::tuple<const char*, int, int>> {};

// The test's group sums in rank order for any part of any tensor: results must be bitwise equal.
TEST_P(ZeroProof, ParametersAreDataParallelsBitForBit) {
  const auto [optimizer, stage, ranks] = GetParam();
  EXPECT_EQ(difference_from_data_parallel(ranks, {.optimizer = optimizer, .stage = stage}), 0);
}

INSTANTIATE_TEST_SUITE_P(OnThreads, ZeroProof,
                         ::testing::Combine(::testing::Values("sgd", "adam", "adamw"),
                                            ::testing::Values(1, 2, 3),
                                            ::testing::Values(1, 2, 4)));

struct ZeroStage : ::testing::TestWithParam<int> {};

TEST_P(ZeroStage, SupportsOtherElementwiseOptimizers) {
  for (const char* name : {"rmsprop", "adagrad", "radam", "yogi"}) {
    EXPECT_EQ(difference_from_data_parallel(3, {.optimizer = name, .stage = GetParam()}), 0)
        << name;
  }
}

TEST_P(ZeroStage, ParameterGroupsTrainAsInDataParallel) {
  for (const std::string name : {"sgd", "adamw", "adagrad"}) {
    for (const int ranks : {1, 3, 4}) {
      Way way{.optimizer = name, .stage = GetParam(), .has_groups = true};
      EXPECT_EQ(difference_from_data_parallel(ranks, way), 0) << name << ranks;
      way.in_backward = true;
      EXPECT_EQ(difference_from_data_parallel(ranks, way), 0) << name << ranks;
    }
    const Way way{.optimizer = name, .stage = GetParam(), .has_groups = true};
    auto without = way;
    without.has_groups = false;
    EXPECT_GT(difference(train(2, way)[0], train(2, without)[0]), 1e-2) << name;
  }
  const Way lamb{
      .optimizer = "lamb", .stage = GetParam(), .has_groups = true, .type = torch::kFloat64};
  EXPECT_LT(difference_from_data_parallel(4, lamb), 1e-6);
}

TEST_P(ZeroStage, StepsInBackwardWithTheSameBits) {
  const RunOnRanks over_tcp = [](int ranks, const auto& body) { run_on_loopback(ranks, body); };
  for (const RunOnRanks& run : {RunOnRanks(run_on_threads), over_tcp}) {
    for (const int parts : {1, 2}) {
      for (const step::Overlap overlap :
           {step::Overlap::none, step::Overlap::backward, step::Overlap::full}) {
        Way way{.stage = GetParam(), .parts = parts, .overlap = overlap};
        const auto expected = train(3, way, run)[0];
        way.in_backward = true;
        EXPECT_EQ(difference(train(3, way, run)[0], expected), 0) << parts << name_of(overlap);
      }
    }
  }
}

TEST_P(ZeroStage, DoesNotStepInBackwardWhatNeedsAllGradients) {
  for (const Way& way : {Way{.optimizer = "lamb", .stage = GetParam(), .in_backward = true},
                         Way{.stage = GetParam(), .max_norm = 1, .in_backward = true}}) {
    try {
      train(1, way, run_on_threads);
      ADD_FAILURE() << way.optimizer;
    } catch (const std::exception& error) {
      EXPECT_THAT(error.what(), ::testing::HasSubstr("call step() after backward"));
    }
  }
}

// Norms are summed in another order, and in double precision.
TEST_P(ZeroStage, LayerwiseOptimizersTakeTheNormsOfWholeTensors) {
  for (const char* name : {"lars", "lamb", "ranger_lars"}) {
    const Way way{.optimizer = name, .stage = GetParam(), .type = torch::kFloat64};
    EXPECT_LT(difference_from_data_parallel(4, way), 1e-6) << name;
  }
}

// The norm is summed in another order.
TEST_P(ZeroStage, GradientsAreClippedByTheirNormOverAllShards) {
  const Way way{.optimizer = "sgd", .stage = GetParam(), .max_norm = 0.05, .type = torch::kFloat64};
  EXPECT_LT(difference_from_data_parallel(4, way), 1e-6);
  auto unclipped = way;
  unclipped.max_norm = 0;
  EXPECT_GT(difference(train(2, way)[0], train(2, unclipped)[0]), 1e-2);
}

// Stage 1 accumulates before it averages, as DataParallel; the other stages after.
TEST_P(ZeroStage, PartsOfABatchAccumulate) {
  Way way{.optimizer = "sgd", .stage = GetParam(), .parts = 2, .type = torch::kFloat64};
  EXPECT_LT(difference_from_data_parallel(4, way), 1e-6);
  way.type = torch::kFloat32;
  if (GetParam() == 1) {
    EXPECT_EQ(difference_from_data_parallel(2, way), 0);
  }
}

TEST_P(ZeroStage, OverlapChangesNothing) {
  const auto expected = train(2, {.stage = GetParam()})[0];
  for (const auto overlap : {step::Overlap::none, step::Overlap::backward}) {
    const auto result = train(2, {.stage = GetParam(), .overlap = overlap})[0];
    EXPECT_EQ(difference(result, expected), 0);
  }
}

void run_over_communicators(int ranks, const std::function<void(const ProcessGroup&)>& body) {
  run_on_loopback(ranks, body);
}

// Over real communicators. Sums of two addends do not depend on the order. With four ranks, the
// tuner's all-reduce and reduce-scatter may sum some elements starting at different ranks.
TEST_P(ZeroStage, AlsoOverCommunicators) {
  for (const char* name : {"sgd", "adam"}) {
    Way way{.optimizer = name, .stage = GetParam()};
    EXPECT_EQ(difference_from_data_parallel(2, way, run_over_communicators), 0);
    way.type = torch::kFloat64;
    EXPECT_LT(difference_from_data_parallel(4, way, run_over_communicators), 1e-6);
  }
}

// Recursive halving sums the same halves of a power-of-two number of ranks, for any part of a
// tensor, in an all-reduce and in a reduce-scatter.
TEST_P(ZeroStage, HasDataParallelsBitsOverFourRanksToo) {
  const RunOnRanks halving = [](int ranks, const auto& body) {
    run_on_loopback(ranks, body,
                    {.algorithm = "all_reduce=halving_doubling,reduce_scatter=recursive_halving"});
  };
  for (const char* name : {"sgd", "adam"}) {
    const Way way{.optimizer = name, .stage = GetParam()};
    EXPECT_EQ(difference_from_data_parallel(4, way, halving), 0) << name;
  }
}

INSTANTIATE_TEST_SUITE_P(Each, ZeroStage, ::testing::Values(1, 2, 3));

}  // namespace
}  // namespace gradwire::test
