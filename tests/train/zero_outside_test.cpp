// A module that is used or changed while bypassing the Zero that wraps it.
#include <sstream>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "gradwire/train/zero/zero.h"
#include "tests/support/torch/thread_group.h"
#include "tests/train/small_models.h"
#include "tests/train/zero_model.h"

namespace gradwire::test {
namespace {

using ::testing::AllOf;
using ::testing::Each;
using ::testing::HasSubstr;

ZeroOptions outside_options(const ProcessGroup& group, int stage) {
  return {.process_group = group,
          .stage = stage,
          .optimizer = make_sgd,
          .min_block_elements = 0,
          .prefetch_elements = 0};
}

torch::Tensor rows_of_ones() {
  return torch::ones({2, 7});
}

/// Starts a step that may still be in flight when the function returns.
template <class Model>
void step_once(Model& model, const torch::Tensor& input = rows_of_ones()) {
  model(input).square().mean().backward();
  model.step();
}

struct OutsideZero : ::testing::TestWithParam<int> {
  /// Returns the errors of both ranks when they change a module of a Zero between two of its steps.
  std::vector<std::string> errors_after(
      const std::function<void(ZeroNet&, Zero<ZeroNet>&)>& change,
      std::optional<torch::ScalarType> parameters = std::nullopt) {
    return errors_on_threads(2, [&](const ProcessGroup& group) {
      auto options = outside_options(group, GetParam());
      options.parameters = parameters;
      ZeroNet net;
      Zero model(net, options);
      const auto input = rows_of_ones().to(parameters.value_or(torch::kFloat32));
      step_once(model, input);
      model.consolidate();
      change(net, model);
      step_once(model, input);
    });
  }
};
INSTANTIATE_TEST_SUITE_P(Stages, OutsideZero, ::testing::Values(1, 2, 3));

struct InStages1And2 : ::testing::TestWithParam<int> {};
INSTANTIATE_TEST_SUITE_P(Stages, InStages1And2, ::testing::Values(1, 2));

TEST_P(InStages1And2, AModuleUsedBeforeItsStepIsOverIsAnErrorThatNamesAParameter) {
  const auto errors = errors_on_threads(2, [](const auto& group) {
    ZeroNet net;
    Zero model(net, outside_options(group, GetParam()));
    step_once(model);
    net->forward(rows_of_ones());
  });
  EXPECT_THAT(errors, Each(AllOf(HasSubstr("before the pending step"), HasSubstr("'head."),
                                 HasSubstr("forward of the gradwire::Zero"),
                                 HasSubstr("call finish() before"))));
}

TEST_P(InStages1And2, AChildOfASequentialToo) {
  const auto errors = errors_on_threads(2, [](const auto& group) {
    torch::nn::Linear last(7, 7);
    Zero model(torch::nn::Sequential(torch::nn::Linear(7, 7), last),
               outside_options(group, GetParam()));
    step_once(model);
    last->forward(rows_of_ones());
  });
  EXPECT_THAT(errors, Each(AllOf(HasSubstr("before the pending step"), HasSubstr("'"))));
}

TEST_P(InStages1And2, AModuleIsThereOnceItsStepIsOver) {
  run_on_threads(2, [](const auto& group) {
    ZeroNet net;
    {
      Zero model(net, outside_options(group, GetParam()));
      step_once(model);
      model.finish();
      const auto finished = net->forward(rows_of_ones());
      EXPECT_TRUE(model(rows_of_ones()).equal(finished));
      const torch::NoGradGuard no_grad;
      EXPECT_TRUE(net->forward(rows_of_ones()).equal(finished)) << "a forward finishes it too";
    }
    Zero again(net, outside_options(group, GetParam()));
    step_once(again);
    { const Zero taken = std::move(again); }
    EXPECT_TRUE(net->head->weight.isfinite().all().template item<bool>()) << "the Zero is gone";
  });
}

/// The loss also includes the module's own output and its parameters, besides the Zero's output.
template <class Model>
torch::Tensor mixed_loss(Model& model, ZeroNet& net, const Task& task) {
  const auto loss = torch::cross_entropy_loss(model(task.inputs), task.targets);
  const auto other = torch::cross_entropy_loss(net->forward(-task.inputs), task.targets);
  return loss + 0.5 * other + 0.01 * net->head->weight.square().sum();
}

ZeroNet seeded_net() {
  ZeroNet net;
  initialise(*net, 4);
  net->to(torch::kFloat64);
  return net;
}

Task double_task(int step, int rank, int ranks) {
  auto task = task_of(step, rank, ranks);
  task.inputs = task.inputs.to(torch::kFloat64);
  return task;
}

Values alone_with_mixed_losses(int steps) {
  auto net = seeded_net();
  std::vector<torch::Tensor> parameters;  // A shared one once.
  for (const auto& [name, tensor] : trainable_parameters(*net)) parameters.push_back(tensor);
  const auto optimizer = make_sgd(parameters);
  for (int step = 0; step < steps; ++step) {
    optimizer->zero_grad();
    mixed_loss(net, net, double_task(step, 0, 1)).backward();
    optimizer->step();
  }
  return values_of(*net);
}

TEST_P(InStages1And2, TheModuleBesideTheZeroInOneLossTrainsAsOneProcess) {
  constexpr int kSteps = 5;
  const auto expected = alone_with_mixed_losses(kSteps);
  run_on_threads(2, [&](const auto& group) {
    auto net = seeded_net();
    Zero model(net, outside_options(group, GetParam()));
    for (int step = 0; step < kSteps; ++step) {
      mixed_loss(model, net, double_task(step, group->getRank(), 2)).backward();
      model.step();
    }
    model.finish();
    EXPECT_LT(difference(values_of(*net), expected), 1e-12);
  });
}

TEST_P(InStages1And2, WritesWithoutAMasterCopyTakeEffect) {
  run_on_threads(2, [](const auto& group) {
    ZeroNet net;
    Zero model(net, outside_options(group, GetParam()));
    step_once(model);
    {
      const torch::NoGradGuard no_grad;
      for (auto& parameter : model->parameters()) parameter.zero_();
    }
    EXPECT_TRUE(model(rows_of_ones()).eq(0).all().template item<bool>());
    step_once(model);
    model.finish();
  });
}

TEST_P(OutsideZero, AModuleThatIsConvertedIsAnErrorThatNamesAParameter) {
  EXPECT_THAT(errors_after([](ZeroNet& net, auto&) { net->to(torch::kFloat64); }),
              Each(AllOf(HasSubstr("'"), HasSubstr("other memory"), HasSubstr("to()"))));
}

TEST_P(OutsideZero, AModuleThatIsLoadedIsAnErrorThatNamesAParameter) {
  std::ostringstream stream;
  torch::save(ZeroNet(), stream);
  EXPECT_THAT(errors_after([&](ZeroNet& net, auto&) {
                std::istringstream saved(stream.str());
                torch::load(net, saved);
              }),
              Each(AllOf(HasSubstr("torch::load()"), HasSubstr("pieces()"))));
}

TEST_P(OutsideZero, ACheckpointOfAModuleThatWasLoadedIsRefused) {
  EXPECT_THAT(errors_after([](ZeroNet& net, Zero<ZeroNet>& model) {
                net->head->weight.set_data(torch::zeros({5, 19}));
                model.pieces();
              }),
              Each(AllOf(HasSubstr("'head.weight'"), HasSubstr("other memory"))));
}

TEST_P(OutsideZero, AnotherWrapperAroundTheModuleIsNoticed) {
  const auto errors = errors_after([](ZeroNet& net, Zero<ZeroNet>& model) {
    const Zero other(net, outside_options(model.process_group(), 1));
  });
  EXPECT_THAT(errors, Each(HasSubstr("another wrapper")));
}

TEST_P(OutsideZero, ALayerThatIsReplacedIsAnErrorThatNamesIt) {
  EXPECT_THAT(errors_after([](ZeroNet& net, auto&) {
                net->head = net->replace_module("head", torch::nn::Linear(19, 5));
              }),
              Each(AllOf(HasSubstr("'head.weight'"), HasSubstr("never be stepped"))));
}

TEST_P(OutsideZero, AParameterThatIsFrozenNoMoreIsAnErrorThatNamesIt) {
  EXPECT_THAT(
      errors_after([](ZeroNet& net, auto&) { net->frozen.requires_grad_(true); }),
      Each(AllOf(HasSubstr("'frozen'"), HasSubstr("frozen when the Zero was constructed"))));
}

TEST_P(OutsideZero, AParameterThatIsFrozenIsAnErrorThatNamesIt) {
  EXPECT_THAT(errors_after([](ZeroNet& net, auto&) { net->head->bias.requires_grad_(false); }),
              Each(AllOf(HasSubstr("'head.bias'"), HasSubstr("go on moving it"))));
}

TEST_P(OutsideZero, WritesThatAStepWouldUndoAreAnError) {
  const auto write = [](ZeroNet& net, auto&) {
    const torch::NoGradGuard no_grad;
    net->head->bias.zero_();
  };
  EXPECT_THAT(errors_after(write, torch::kBFloat16),
              Each(AllOf(HasSubstr("'head.bias'"), HasSubstr("has been written to"))));
  if (GetParam() < 3) return;
  EXPECT_THAT(errors_after(write), Each(AllOf(HasSubstr("'head.bias'"), HasSubstr("pieces()"))));
}

TEST_P(OutsideZero, ReadingAndMovingToWhereItIsAreFine) {
  EXPECT_THAT(errors_after([](ZeroNet& net, auto&) {
                net->to(torch::kFloat32);
                net->zero_grad();
                const torch::NoGradGuard no_grad;
                EXPECT_TRUE(net->forward(rows_of_ones()).defined());
              }),
              Each(""));
}

}  // namespace
}  // namespace gradwire::test
