#include <cmath>
#include <filesystem>
#include <iterator>
#include <limits>
#include <string>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "gradwire/base/error.h"
#include "tests/support/error_of.h"
#include "tests/support/temporary_folder.h"
#include "tests/support/torch/loopback.h"
#include "tests/support/torch/thread_group.h"
#include "tests/train/small_models.h"
#include "tests/train/subprocess.h"
#include "tests/train/zero_model.h"

namespace gradwire::test {
namespace {

using ::testing::AllOf;
using ::testing::Each;
using ::testing::HasSubstr;

torch::nn::Sequential layers(int count, int width) {
  torch::nn::Sequential model;
  for (int i = 0; i < count; ++i) {
    model->push_back(torch::nn::Linear(width, width));
    model->push_back(torch::nn::Tanh());
  }
  initialise(*model, 1);
  return model;
}

ZeroOptions options_of(const ProcessGroup& group, int stage) {
  return {.process_group = group,
          .stage = stage,
          .optimizer = make_adam,
          .min_block_elements = 0,
          .prefetch_elements = 0};
}

struct ZeroEachStage : ::testing::TestWithParam<int> {};
INSTANTIATE_TEST_SUITE_P(Stages, ZeroEachStage, ::testing::Values(1, 2, 3));

/// Rajbhandari et al., section 5, figure 1: 2 Psi + 2 Psi + K Psi bytes, K = 12, sharded by stage.
double formula(int stage, double psi, double ranks) {
  const double parameters = stage == 3 ? 2 * psi / ranks : 2 * psi;
  const double gradients = stage >= 2 ? 2 * psi / ranks : 2 * psi;
  return parameters + gradients + 12 * psi / ranks;
}

TEST_P(ZeroEachStage, KeepsTheBytesOfTheFormula) {
  const int stage = GetParam();
  for (const int ranks : {1, 2, 4, 8}) {
    run_on_threads(ranks, [&](const auto& group) {
      auto options = options_of(group, stage);
      options.parameters = torch::kBFloat16;
      options.overlap = step::Overlap::backward;
      Zero model(layers(4, 64), options);
      const auto input = torch::ones({2, 64}, torch::kBFloat16);
      model(input).sum().backward();
      model.step();
      model(input).sum().backward();
      const auto bytes = model.core().bytes();
      const double states =
          static_cast<double>(bytes.parameters + bytes.gradients + bytes.optimizer);
      const double expected = formula(stage, 4 * (64 * 64 + 64), ranks);
      EXPECT_NEAR(states / expected, 1, 0.02) << ranks << " ranks";
      model.step();
    });
  }
}

/// Returns true if this process maps a file that was made in `folder`.
bool maps_files_of(const std::filesystem::path& folder) {
  return content_of("/proc/self/maps").find(folder.string() + "/") != std::string::npos;
}

std::vector<torch::Tensor> trained_with_states_in(const std::filesystem::path& folder, int stage) {
  std::vector<torch::Tensor> parameters;
  run_on_threads(2, [&](const ProcessGroup& group) {
    auto options = options_of(group, stage);
    options.offload_optimizer = folder;
    Zero model(layers(3, 16), options);
    for (int i = 0; i < 4; ++i) {
      model(torch::full({2, 16}, 0.1 * (i + group->getRank()))).sum().backward();
      model.step();
    }
    model.finish();
    EXPECT_TRUE(folder.empty() || maps_files_of(folder));
    model.consolidate();
    if (group->getRank() != 0) return;
    for (const auto& parameter : model->parameters()) parameters.push_back(parameter.clone());
  });
  return parameters;
}

TEST_P(ZeroEachStage, TrainsTheSameBitsWithItsStatesInFiles) {
  const TemporaryFolder folder;
  expect_equal(trained_with_states_in({}, GetParam()),
               trained_with_states_in(folder.path(), GetParam()));
  EXPECT_FALSE(maps_files_of(folder.path())) << "left behind";
}

/// Payload bytes that rank 0 sends in a step, as a multiple of (P - 1) / P of the gradients' bytes.
double volume(int ranks, int stage) {
  double sent = 0;
  run_on_loopback(ranks, [&](const auto& group) {
    const auto module = layers(6, 64);
    const double whole = 6 * (64 * 64 + 64) * 4;
    const auto communicator = communicator_of(*group);
    const auto measure = [&](auto& model) {
      const auto step = [&] {
        model(torch::ones({2, 64})).sum().backward();
        model.step();
      };
      for (int i = 0; i < 2; ++i) step();
      model.finish();
      const auto before = communicator->payload_bytes_sent();
      for (int i = 0; i < 4; ++i) step();
      model.finish();
      if (group->getRank() != 0) return;
      sent = static_cast<double>(communicator->payload_bytes_sent() - before) / 4 /
             (whole * (ranks - 1) / ranks);
    };
    if (stage == 0) {
      DataParallel model(module, {.process_group = group, .optimizer = make_adam});
      measure(model);
    } else {
      Zero model(module, options_of(group, stage));
      measure(model);
    }
  });
  return sent;
}

TEST(ZeroVolume, IsDataParallelsInStages1And2AndHalfAsMuchAgainIn3) {
  for (const int ranks : {2, 4}) {
    EXPECT_NEAR(volume(ranks, 1), 2, 0.01) << ranks << " ranks";
    EXPECT_NEAR(volume(ranks, 2), 2, 0.01) << ranks << " ranks";
    const double max = volume(ranks, 3);
    EXPECT_LE(max, 3.0) << ranks << " ranks";
    EXPECT_GE(max, 2.5) << ranks << " ranks: parameters were not dropped";
  }
}

// With two ranks, the all-reduce sends neither more nor less.
TEST(ZeroVolume, DataParallelSendsTwiceTheModel) {
  EXPECT_NEAR(volume(2, 0), 2, 0.01);
}

TEST(Zero, RefusesOptimizersThatAreNotElementwise) {
  const auto errors = errors_on_threads(2, [](const auto& group) {
    auto options = options_of(group, 2);
    options.optimizer = [](std::vector<torch::Tensor> parameters) {
      return std::make_unique<torch::optim::LBFGS>(std::move(parameters));
    };
    Zero model(torch::nn::Linear(2, 2), options);
  });
  EXPECT_THAT(errors, Each(AllOf(HasSubstr("LBFGS"), HasSubstr("DataParallel"))));
}

/// Makes a state for each of the given parameters at once.
struct EagerSgd : torch::optim::SGD {
  explicit EagerSgd(std::vector<torch::Tensor> parameters) : SGD(parameters, 0.1) {
    for (const auto& parameter : parameters) {
      state_[parameter.unsafeGetTensorImpl()] = std::make_unique<torch::optim::SGDParamState>();
    }
  }
};

TEST(Zero, RefusesOptimizersWhoseGroupsItCannotDivide) {
  run_on_threads(1, [](const auto& group) {
    const auto error = [&](const OptimizerFactory& make) {
      auto options = options_of(group, 1);
      options.optimizer = make;
      return error_of([&] { Zero(torch::nn::Linear(2, 2), options); });
    };
    EXPECT_THAT(error([](std::vector<torch::Tensor> parameters) {
                  return std::make_unique<EagerSgd>(std::move(parameters));
                }),
                AllOf(HasSubstr("EagerSgd"), HasSubstr("states of whole parameters")));
    EXPECT_THAT(error([](std::vector<torch::Tensor> parameters) {
                  for (auto& parameter : parameters) parameter = parameter.detach().clone();
                  return std::make_unique<torch::optim::SGD>(std::move(parameters), 0.1);
                }),
                HasSubstr("a tensor that the factory was not given"));
  });
}

TEST(Zero, OptionsThatMakeNoSenseAreRefused) {
  run_on_threads(1, [](const auto& group) {
    const auto refused = [&](auto change) {
      auto options = options_of(group, 3);
      change(options);
      EXPECT_THROW(Zero(torch::nn::Linear(2, 2), options), Exception);
    };
    refused([](auto& options) { options.stage = 4; });
    refused([](auto& options) { options.stage = 0; });
    refused([](auto& options) { options.optimizer = nullptr; });
    refused([](auto& options) { options.process_group = {}; });
    refused([](auto& options) { options.max_grad_norm = -1; });
    refused([](auto& options) { options.bucket_cap_mb = 0; });
  });
}

TEST(Zero, TheModuleInsideIsAnErrorThatNamesItsParameter) {
  const auto errors = errors_on_threads(2, [](const auto& group) {
    ZeroNet net;
    Zero model(net, options_of(group, 3));
    net->forward(torch::ones({1, 7}));
  });
  EXPECT_THAT(errors, Each(AllOf(HasSubstr("'first.weight'"), HasSubstr("consolidate()"),
                                 HasSubstr("forward of the gradwire::Zero"))));
}

TEST_P(ZeroEachStage, ABackwardThatNoForwardOfItLedToIsAnError) {
  const auto errors = errors_on_threads(2, [](const auto& group) {
    ZeroNet net;
    Zero model(net, options_of(group, GetParam()));
    model.consolidate();
    net->forward(torch::ones({1, 7})).sum().backward();
  });
  EXPECT_THAT(errors[0] + errors[1],
              HasSubstr("a gradient of 'head.bias' without a preceding forward"));
}

TEST_P(ZeroEachStage, ConsolidatedParametersCanBeEvaluatedAnyNumberOfTimes) {
  run_on_threads(2, [](const auto& group) {
    ZeroNet net;
    Zero model(net, options_of(group, GetParam()));
    train_on_tasks(model, 3, 1, [&] { model.step(); });
    const auto through = [&] {
      const torch::NoGradGuard no_grad;
      return model(torch::ones({1, 7})).clone();
    };
    const auto spread = through();
    model.consolidate();
    const torch::NoGradGuard no_grad;
    EXPECT_TRUE(net->forward(torch::ones({1, 7})).equal(spread));
    for (int i = 0; i < 2 * group->getRank(); ++i) EXPECT_TRUE(through().equal(spread));
  });
}

Values train_half(const ProcessGroup& group, int stage) {
  ZeroNet net;
  initialise(*net, 3);
  auto options = options_of(group, stage);
  options.parameters = torch::kBFloat16;
  Zero model(net, options);
  for (int step = 0; step < 20; ++step) {
    const auto [inputs, targets] = task_of(step, model.rank(), model.world_size());
    const auto output = model(inputs.to(torch::kBFloat16));
    torch::cross_entropy_loss(output.to(torch::kFloat32), targets).backward();
    model.step();
  }
  EXPECT_EQ(net->head->weight.scalar_type(), torch::kBFloat16);
  model.consolidate();
  return values_of(*net);
}

TEST(ZeroInBf16, AllStagesMakeTheSameModelAndItIsAboutThatOfFp32) {
  std::vector<Values> of_stage(4);
  for (int stage = 1; stage <= 3; ++stage) {
    run_on_threads(2, [&](const auto& group) {
      const auto values = train_half(group, stage);
      if (group->getRank() == 0) of_stage[static_cast<std::size_t>(stage)] = values;
    });
  }
  EXPECT_EQ(difference(of_stage[1], of_stage[2]), 0);
  EXPECT_EQ(difference(of_stage[1], of_stage[3]), 0);
  run_on_threads(2, [&](const auto& group) {
    ZeroNet net;
    initialise(*net, 3);
    Zero model(net, options_of(group, 1));
    train_on_tasks(model, 20, 1, [&] { model.step(); });
    model.consolidate();
    const auto exact = values_of(*net).at("first.weight");
    const auto half = of_stage[1].at("first.weight").to(torch::kFloat32);
    EXPECT_LT((half - exact).norm().template item<double>(),
              0.1 * exact.norm().template item<double>());
  });
}

TEST_P(ZeroEachStage, AnOverflowOnOneRankMakesAllSkipTheStep) {
  std::vector<Values> results(2);
  run_on_threads(2, [&](const auto& group) {
    auto options = options_of(group, GetParam());
    options.parameters = torch::kHalf;
    options.optimizer = make_sgd;
    auto module = layers(2, 8);
    Zero model(module, options);
    LossScaler scaler({.scale = 1024});
    const auto step = [&](double input) {
      const auto output = model(torch::full({2, 8}, input, torch::kHalf));
      (output.to(torch::kFloat32).square().mean() * scaler.scale()).backward();
      return model.step(nullptr, &scaler);
    };
    EXPECT_TRUE(step(0.5));
    model.consolidate();
    const auto before = values_of(*module);
    const double infinity = std::numeric_limits<double>::infinity();
    EXPECT_FALSE(step(group->getRank() == 1 ? infinity : 0.5));
    EXPECT_EQ(scaler.scale(), 512);
    EXPECT_EQ(scaler.skipped(), 1);
    model.consolidate();
    EXPECT_EQ(difference(values_of(*module), before), 0);
    EXPECT_TRUE(step(0.5));
    model.consolidate();
    EXPECT_GT(difference(values_of(*module), before), 0);
    results[static_cast<std::size_t>(group->getRank())] = values_of(*module);
  });
  EXPECT_EQ(difference(results[0], results[1]), 0);
}

TEST_P(ZeroEachStage, ConsolidatingAroundAStepShowsWhatItDid) {
  run_on_threads(2, [&](const auto& group) {
    ZeroNet net;
    initialise(*net, 3);
    Zero model(net, options_of(group, GetParam()));
    const auto [inputs, targets] = task_of(0, model.rank(), model.world_size());
    torch::cross_entropy_loss(model(inputs), targets).backward();
    model.consolidate();
    const auto before = values_of(*net);
    model.step();
    model.consolidate();
    EXPECT_GT(difference(values_of(*net), before), 1e-4);
  });
}

// Consistency training does this: it uses the model's output for another view of the batch.
TEST_P(ZeroEachStage, AForwardWithoutGradientsMayComeBeforeBackward) {
  const auto trained = [&](const ProcessGroup& group, bool looks) {
    ZeroNet net;
    initialise(*net, 3);
    Zero model(net, options_of(group, GetParam()));
    for (int step = 0; step < 3; ++step) {
      const auto [inputs, targets] = task_of(step, model.rank(), model.world_size());
      const auto loss = torch::cross_entropy_loss(model(inputs), targets);
      if (looks) {
        const torch::NoGradGuard no_grad;
        model(inputs);
      }
      loss.backward();
      model.step();
    }
    model.consolidate();
    return values_of(*net);
  };
  run_on_threads(2, [&](const auto& group) {
    EXPECT_EQ(difference(trained(group, true), trained(group, false)), 0);
  });
}

TEST_P(ZeroEachStage, PiecesHoldEveryElementAndCarryOverToAnyOtherStage) {
  std::vector<std::vector<TensorPiece>> pieces(3);
  Values expected;
  run_on_threads(3, [&](const auto& group) {
    ZeroNet net;
    initialise(*net, 3);
    Zero model(net, options_of(group, GetParam()));
    train_on_tasks(model, 3, 1, [&] { model.step(); });
    for (const auto& piece : model.pieces()) {
      pieces[static_cast<std::size_t>(group->getRank())].push_back(
          {piece.name, piece.shape, piece.begin, piece.data.clone()});
    }
    train_on_tasks(model, 3, 1, [&] { model.step(); });
    model.consolidate();
    if (group->getRank() == 0) expected = values_of(*net);
  });
  std::map<std::string, torch::Tensor> whole;
  for (const auto& of_rank : pieces) {
    for (const auto& piece : of_rank) {
      auto& tensor = whole[piece.name];
      if (!tensor.defined()) {
        tensor = torch::full(piece.shape, std::nan(""), torch::kFloat64);
      }
      tensor.view({-1}).narrow(0, piece.begin, piece.data.numel()).copy_(piece.data);
    }
  }
  EXPECT_TRUE(whole.contains("optimizer.exp_avg_sq.twice.weight"));
  EXPECT_TRUE(whole.contains("optimizer.step.scale"));
  EXPECT_TRUE(whole.contains("frozen"));
  for (const auto& [name, tensor] : whole) EXPECT_FALSE(tensor.isnan().any().item<bool>()) << name;
  run_on_threads(3, [&](const auto& group) {
    ZeroNet net;
    Zero model(net, options_of(group, 1 + GetParam() % 3));
    for (const auto& piece : model.pieces(true)) {
      piece.data.copy_(whole.at(piece.name).view({-1}).narrow(0, piece.begin, piece.data.numel()));
    }
    model.loaded();
    train_on_tasks(model, 3, 1, [&] { model.step(); });
    model.consolidate();
    EXPECT_EQ(difference(values_of(*net), expected), 0);
  });
}

/// Runs a program that may run out of memory.
Finished train_within(int stage, int mebibytes) {
  const auto programs = own_program().parent_path();
  return run({programs / "gradwire", "run", "-n", "4", "--", programs / "train_rank", "limited",
              std::to_string(stage), std::to_string(mebibytes)},
             {{"MALLOC_ARENA_MAX", "1"}});
}

// 384 MiB of states with DataParallel; 96 MiB with stage 3 on four ranks.
TEST(ZeroMemory, AModelThatDoesNotFitAsDataParallelFitsAsStage3) {
  const auto whole = train_within(0, 384);
  EXPECT_NE(whole.status, 0) << whole.output;
  EXPECT_THAT(whole.output, AllOf(HasSubstr("stage 0"), HasSubstr("can't allocate memory")));
  const auto spread = train_within(3, 384);
  EXPECT_EQ(spread.status, 0) << spread.output;
}

}  // namespace
}  // namespace gradwire::test
