#include <limits>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "gradwire/base/error.h"
#include "gradwire/host/buckets.h"
#include "gradwire/host/training_host.h"
#include "gradwire/train/checkpoint/local_state.h"
#include "gradwire/train/data_parallel/data_parallel.h"
#include "tests/support/torch/loopback.h"
#include "tests/support/torch/thread_group.h"

namespace gradwire::test {
namespace {

using ::testing::AllOf;
using ::testing::Each;
using ::testing::HasSubstr;

std::unique_ptr<torch::optim::Optimizer> sgd(std::vector<torch::Tensor> parameters) {
  return std::make_unique<torch::optim::SGD>(std::move(parameters),
                                             torch::optim::SGDOptions(0.05).momentum(0.5));
}

torch::nn::Sequential small_net() {
  torch::nn::Sequential net(torch::nn::Linear(8, 32), torch::nn::Tanh(), torch::nn::Linear(32, 1));
  const torch::NoGradGuard no_grad;
  auto generator = at::detail::createCPUGenerator(7);
  for (auto& parameter : net->parameters()) parameter.normal_(0, 0.3, generator);
  return net;
}

DataParallelOptions options_for(const ProcessGroup& group, const std::string& codec,
                                step::Overlap overlap = step::Overlap::full) {
  return {.process_group = group,
          .bucket_cap_mb = 0.0005,
          .optimizer = sgd,
          .overlap = overlap,
          .codec = codec,
          .codec_min_elements = 16};
}

/// Fits a linear function for some steps; returns the losses.
std::vector<double> fit(DataParallel<torch::nn::Sequential>& model, int steps, int first = 0) {
  std::vector<double> losses;
  for (int step = first; step < first + steps; ++step) {
    auto generator = at::detail::createCPUGenerator(
        static_cast<std::uint64_t>(step * model.world_size() + model.rank()));
    const auto inputs = torch::randn({16, 8}, generator);
    const auto loss = torch::mse_loss(model(inputs), inputs.sum(1, true) * 0.2);
    loss.backward();
    model.step();
    losses.push_back(loss.item<double>());
  }
  return losses;
}

torch::Tensor flat(DataParallel<torch::nn::Sequential>& model) {
  std::vector<torch::Tensor> all;
  for (const auto& parameter : model->parameters()) all.push_back(parameter.detach().flatten());
  return torch::cat(all);
}

struct CodecTraining : ::testing::TestWithParam<const char*> {};

TEST_P(CodecTraining, LearnsAndLeavesAllRanksWithTheSameBits) {
  std::vector<torch::Tensor> results(3);
  std::vector<double> losses;
  run_on_loopback(3, [&](const auto& group) {
    DataParallel model(small_net(), options_for(group, GetParam()));
    const auto mine = fit(model, 120);
    results[static_cast<std::size_t>(model.rank())] = flat(model);
    if (model.rank() == 0) losses = mine;
  });
  EXPECT_TRUE(results[0].equal(results[1]));
  EXPECT_TRUE(results[0].equal(results[2]));
  EXPECT_LT(losses.back(), 0.2 * losses.front());
}

TEST_P(CodecTraining, IsTheSameWhateverOverlaps) {
  std::vector<torch::Tensor> results;
  for (const auto overlap : {step::Overlap::none, step::Overlap::backward, step::Overlap::full}) {
    run_on_loopback(2, [&](const auto& group) {
      DataParallel model(small_net(), options_for(group, GetParam(), overlap));
      fit(model, 10);
      if (model.rank() == 0) results.push_back(flat(model));
    });
  }
  EXPECT_TRUE(results[0].equal(results[1]));
  EXPECT_TRUE(results[0].equal(results[2]));
}

TEST_P(CodecTraining, GoesOnWithTheSameBitsFromItsState) {
  run_on_loopback(2, [](const auto& group) {
    DataParallel first(small_net(), options_for(group, GetParam()));
    fit(first, 5);
    first.finish();
    const auto saved = state_of(first.host().exchange(), "codec/");
    DataParallel second(small_net(), options_for(group, GetParam()));
    const torch::NoGradGuard no_grad;
    std::map<std::string, torch::Tensor> state;
    for (const auto& [name, tensor] : saved) state[name] = tensor;
    load_state(second.host().exchange(), state, "codec/");
    const auto from = first->parameters();
    const auto to = second->parameters();
    for (std::size_t i = 0; i < from.size(); ++i) to[i].copy_(from[i]);
    std::vector<torch::Tensor> gradients;
    for (auto* model : {&first, &second}) {
      const torch::AutoGradMode on(true);
      torch::mse_loss((*model)(torch::ones({4, 8})), torch::zeros({4, 1})).backward();
      model->finish();
      gradients.push_back((*model)->parameters()[0].grad().clone());
    }
    EXPECT_TRUE(gradients[0].equal(gradients[1]));
  });
}

TEST_P(CodecTraining, OfTwoModelsMayGoInAnotherOrderOnEachRank) {
  std::vector<std::vector<torch::Tensor>> results(2);
  run_on_loopback(2, [&](const auto& group) {
    DataParallel one(small_net(), options_for(group, GetParam()));
    DataParallel two(small_net(), options_for(group, GetParam()));
    const auto backward = [](auto& model, double target) {
      const auto inputs = torch::full({4, 8}, 0.1 * (model.rank() + 1));
      torch::mse_loss(model(inputs), torch::full({4, 1}, target)).backward();
    };
    for (int step = 0; step < 3; ++step) {
      if (one.rank() == 0) backward(one, 1);
      backward(two, -1);
      if (one.rank() == 1) backward(one, 1);
      one.step();
      two.step();
    }
    one.finish();
    two.finish();
    results[static_cast<std::size_t>(one.rank())] = {flat(one), flat(two)};
  });
  EXPECT_TRUE(results[0][0].equal(results[1][0]));
  EXPECT_TRUE(results[0][1].equal(results[1][1]));
  EXPECT_FALSE(results[0][0].equal(results[0][1]));
}

TEST_P(CodecTraining, LeavesVectorsAndSmallTensorsAlone) {
  run_on_loopback(2, [](const auto& group) {
    DataParallel model(small_net(), options_for(group, GetParam()));
    const auto inputs = torch::full({1, 8}, 0.1 * (model.rank() + 1));
    model(inputs).sum().backward();
    model.finish();
    EXPECT_TRUE(model->parameters()[3].grad().equal(torch::ones({1})));
    for (const auto& shape : model.core().buckets().layout().shapes) {
      for (const auto& tensor : shape.tensors) {
        const bool vector = tensor.name.ends_with("bias");
        EXPECT_EQ(shape.skip_compression, vector || GetParam() == std::string("none"))
            << tensor.name;
      }
    }
  });
}

TEST_P(CodecTraining, ANaNReachesEveryRank) {
  run_on_loopback(2, [](const auto& group) {
    DataParallel model(small_net(), options_for(group, GetParam()));
    const double value = model.rank() == 1 ? std::numeric_limits<double>::quiet_NaN() : 1;
    model(torch::full({1, 8}, value)).sum().backward();
    model.finish();
    EXPECT_FALSE(model->parameters()[0].grad().isfinite().all().template item<bool>());
  });
}

INSTANTIATE_TEST_SUITE_P(OverLoopback, CodecTraining,
                         ::testing::Values("none", "bf16", "int8", "one_bit", "top_k:0.1",
                                           "power_sgd:2"));

TEST(CodecTraining, AnUnknownCodecListsTheKnown) {
  const auto refused = [](const ProcessGroup& group) {
    try {
      DataParallel model(small_net(), options_for(group, "int9"));
    } catch (const Exception& error) {
      EXPECT_EQ(error.kind(), ErrorKind::invalid_argument);
      EXPECT_THAT(error.what(), AllOf(HasSubstr("int9"), HasSubstr("int8"), HasSubstr("top_k")));
      return;
    }
    ADD_FAILURE() << "int9 was accepted";
  };
  run_on_loopback(2, refused);
}

TEST(CodecTraining, GroupsOfOtherBackendsHaveNoCodecs) {
  const auto errors = errors_on_threads(
      2, [](const auto& group) { DataParallel model(small_net(), options_for(group, "int8")); });
  EXPECT_THAT(errors, Each(AllOf(HasSubstr("\"int8\""), HasSubstr("gradwire::init()"))));
}

TEST(CodecTraining, StateOfAnotherShapeIsAnErrorThatNamesTheParameter) {
  run_on_loopback(2, [](const auto& group) {
    DataParallel model(small_net(), options_for(group, "top_k:0.1"));
    fit(model, 2);
    model.finish();
    auto& exchange = model.host().exchange();
    std::map<std::string, torch::Tensor> state;
    for (const auto& [name, tensor] : state_of(exchange, "")) state[name] = tensor;
    ASSERT_TRUE(state.contains("0.weight.sent"));
    state["0.weight.sent"] = torch::zeros({5});
    try {
      load_state(exchange, state, "");
      ADD_FAILURE() << "it was taken";
    } catch (const Exception& error) {
      EXPECT_THAT(error.what(), HasSubstr("0.weight"));
    }
  });
}

TEST(CheckFinite, NamesTheParameterOnEveryRank) {
  const auto errors = errors_on_threads(3, [](const auto& group) {
    DataParallel model(torch::nn::Sequential(torch::nn::Linear(2, 2), torch::nn::Linear(2, 2)),
                       {.process_group = group, .bucket_cap_mb = 1e-6, .check_finite = true});
    auto loss = model(torch::ones({1, 2})).sum();
    if (model.rank() == 1) loss = loss * std::numeric_limits<float>::infinity();
    loss.backward();
  });
  EXPECT_THAT(errors, Each(AllOf(HasSubstr("the gradient of '1."), HasSubstr("NaN or infinite"))));
}

class CheckFiniteWith : public ::testing::TestWithParam<const char*> {};

/// A codec's block holds values of several parameters, and one non-finite value spoils them all.
TEST_P(CheckFiniteWith, ACodecNamesOnlyTheParameterThatIsNotFinite) {
  run_on_loopback(3, [](const auto& group) {
    try {  // The error may reach other ranks before they have made their models.
      torch::nn::Sequential net(torch::nn::Linear(4, 4), torch::nn::Linear(4, 4),
                                torch::nn::Linear(4, 4));
      DataParallel model(net, {.process_group = group,
                               .codec = GetParam(),
                               .codec_min_elements = 1,
                               .check_finite = true});
      if (model.rank() == 1) {
        model->named_parameters()["1.weight"].register_hook(
            [](const torch::Tensor& gradient) { return gradient / 0.0; });
      }
      model(torch::ones({1, 4})).sum().backward();
      ADD_FAILURE() << "rank " << model.rank() << " went on";
    } catch (const std::exception& error) {
      EXPECT_THAT(error.what(),
                  AllOf(HasSubstr("the gradient of '1.weight'"), HasSubstr("NaN or infinite")));
    }
  });
}

INSTANTIATE_TEST_SUITE_P(OverLoopback, CheckFiniteWith,
                         ::testing::Values("none", "bf16", "int8", "one_bit", "top_k:0.1",
                                           "power_sgd:2"));

}  // namespace
}  // namespace gradwire::test
