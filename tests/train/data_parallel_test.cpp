#include "gradwire/train/data_parallel/data_parallel.h"

#include <map>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "gradwire/base/error.h"
#include "gradwire/train/data_parallel/accumulate.h"
#include "tests/support/torch/loopback.h"
#include "tests/support/torch/thread_group.h"
#include "tests/train/proof_model.h"

namespace gradwire::test {
namespace {

using ::testing::AllOf;
using ::testing::Each;
using ::testing::HasSubstr;

struct Proof : ::testing::TestWithParam<std::tuple<Rule, int>> {};

TEST_P(Proof, RanksWithPartsOfABatchEqualOneProcessWithAll) {
  const auto [rule, ranks] = GetParam();
  Parameters alone;
  run_on_threads(1,
                 [&, rule = rule](const auto& group) { alone = train_proof_net(group, rule, 50); });
  ASSERT_EQ(alone.size(), 13u);
  std::vector<Parameters> together(static_cast<std::size_t>(ranks));
  run_on_threads(ranks, [&, rule = rule](const auto& group) {
    together[static_cast<std::size_t>(group->getRank())] = train_proof_net(group, rule, 50);
  });
  for (const auto& parameters : together) {
    EXPECT_LT(test::largest_difference(alone, parameters), 1e-6);
    EXPECT_EQ(test::largest_difference(together[0], parameters), 0) << "ranks must not drift apart";
  }
}

INSTANTIATE_TEST_SUITE_P(OnThreads, Proof,
                         ::testing::Combine(::testing::Values(Rule::sgd_with_momentum, Rule::adam),
                                            ::testing::Values(2, 4)));

TEST(ProofNet, LearnsSomethingIn50Steps) {
  Parameters before;
  Parameters after;
  run_on_threads(1, [&](const auto& group) {
    before = train_proof_net(group, Rule::adam, 0);
    after = train_proof_net(group, Rule::adam, 50);
  });
  EXPECT_GT(test::largest_difference(before, after), 1e-3);
  EXPECT_TRUE(before["never.weight"].equal(after["never.weight"]));
}

/// Two linear layers; forward uses those that are selected.
struct TwoLayersImpl : torch::nn::Module {
  explicit TwoLayersImpl(std::int64_t width = 3) {
    a = register_module("a", torch::nn::Linear(2, width));
    b = register_module("b", torch::nn::Linear(2, width));
  }
  torch::Tensor forward(const torch::Tensor& x, bool use_a, bool use_b) {
    auto sum = torch::zeros({x.size(0), a->options.out_features()});
    if (use_a) sum = sum + a(x);
    if (use_b) sum = sum + b(x);
    return sum;
  }
  torch::nn::Linear a{nullptr};
  torch::nn::Linear b{nullptr};
};
TORCH_MODULE(TwoLayers);

torch::Tensor input_of(int rank) {
  return torch::full({1, 2}, rank + 1.0);
}

TEST(DataParallel, GradientsAreTheMeanOverRanks) {
  run_on_threads(3, [](const auto& group) {
    DataParallel model(TwoLayers(), {.process_group = group});
    model(input_of(group->getRank()), true, true).sum().backward();
    EXPECT_TRUE(model->a->weight.grad().allclose(torch::full({3, 2}, 2.0)));
    EXPECT_TRUE(model->b->bias.grad().allclose(torch::ones({3})));
    EXPECT_EQ(model.stats().bytes, 2 * (3 * 2 + 3) * 4);
    EXPECT_EQ(model.stats().synchronized, 1);
  });
}

TEST(DataParallel, AllRanksStartWithTheStateOfRank0) {
  run_on_threads(3, [](const auto& group) {
    torch::nn::BatchNorm1d norm(4);
    {
      const torch::NoGradGuard no_grad;
      norm->weight.fill_(group->getRank());
      norm->running_mean.fill_(group->getRank());
      norm->num_batches_tracked.fill_(group->getRank() + 5);
    }
    DataParallel model(norm, {.process_group = group});
    EXPECT_TRUE(norm->weight.equal(torch::zeros({4})));
    EXPECT_TRUE(norm->running_mean.equal(torch::zeros({4})));
    EXPECT_EQ(norm->num_batches_tracked.template item<int>(), 5);
  });
}

TEST(DataParallel, BuffersAreRank0sBeforeEachTrainingForward) {
  for (const bool broadcast : {true, false}) {
    run_on_threads(2, [&](const auto& group) {
      torch::nn::BatchNorm1d norm(1);
      DataParallel model(norm, {.process_group = group, .broadcast_buffers = broadcast});
      const auto input = torch::tensor({{0.f}, {2.f}}) * (group->getRank() + 1);
      model(input);
      model(input);
      // Running mean after two updates by 0.1, with this rank's mean r + 1, from rank 0's value or
      // its own.
      const double own = group->getRank() + 1;
      const double before = broadcast ? 0.1 : 0.1 * own;
      EXPECT_NEAR(norm->running_mean.template item<double>(), 0.9 * before + 0.1 * own, 1e-6);
      model.synchronize_buffers();
      EXPECT_NEAR(norm->running_mean.template item<double>(), 0.19, 1e-6);
    });
  }
}

TEST(DataParallel, EvaluationCommunicatesNothing) {
  run_on_threads(2, [](const auto& group) {
    DataParallel model(torch::nn::BatchNorm1d(1), {.process_group = group});
    model->eval();
    const auto begun = [&] { return group->getDefaultBackend()->getSequenceNumberForGroup(); };
    const auto before = begun();
    for (int i = 0; i < 3; ++i) model(torch::ones({2, 1}));
    EXPECT_EQ(begun(), before);
    model->train();
    model(torch::ones({2, 1}));
    EXPECT_GT(begun(), before) << "training broadcasts the buffers";
  });
}

TEST(DataParallel, ShapesThatDifferAreAnErrorOnAllRanks) {
  const auto errors = errors_on_threads(3, [](const auto& group) {
    DataParallel model(TwoLayers(group->getRank() == 2 ? 4 : 3), {.process_group = group});
  });
  EXPECT_THAT(errors,
              Each(AllOf(HasSubstr("'a.weight' of shape [3, 2] and type Float on rank 0"),
                         HasSubstr("'a.weight' of shape [4, 2] and type Float on rank 2"))));
}

TEST(DataParallel, AModelWithMoreParametersIsAnError) {
  const auto errors = errors_on_threads(2, [](const auto& group) {
    torch::nn::Sequential model(torch::nn::Linear(1, 1));
    if (group->getRank() == 1) model->push_back(torch::nn::Linear(1, 1));
    DataParallel parallel(model, {.process_group = group});
  });
  EXPECT_THAT(errors, Each(AllOf(HasSubstr("nothing on rank 0"), HasSubstr("'1.weight'"))));
}

TEST(DataParallel, UnusedOnSomeRanksCountsAsZeroThere) {
  run_on_threads(2, [](const auto& group) {
    DataParallel model(TwoLayers(), {.process_group = group, .find_unused_parameters = true});
    model(input_of(0), group->getRank() == 0, true).sum().backward();
    EXPECT_TRUE(model->a->weight.grad().allclose(torch::full({3, 2}, 0.5)));
    EXPECT_TRUE(model->b->weight.grad().allclose(torch::full({3, 2}, 1.0)));
  });
}

TEST(DataParallel, UnusedOnAllRanksLeavesTheGradientAlone) {
  run_on_threads(3, [](const auto& group) {
    DataParallel model(TwoLayers(), {.process_group = group, .find_unused_parameters = true});
    model(input_of(0), false, true).sum().backward();
    EXPECT_FALSE(model->a->weight.grad().defined());
    model(input_of(0), true, true).sum().backward();
    const auto before = model->a->weight.grad().clone();
    model(input_of(0), false, true).sum().backward();
    EXPECT_TRUE(model->a->weight.grad().equal(before));
    EXPECT_TRUE(model->b->weight.grad().allclose(torch::full({3, 2}, 3.0)));
  });
}

// For example an evaluation with gradients, or a skipped batch.
TEST(DataParallel, AForwardWithoutBackwardLeavesNothingBehind) {
  run_on_threads(2, [](const auto& group) {
    DataParallel model(TwoLayers(), {.process_group = group, .find_unused_parameters = true});
    const auto x = input_of(group->getRank());
    for (int i = 0; i < 3; ++i) model(x, true, true);
    model(x, false, true).sum().backward();
    EXPECT_FALSE(model->a->weight.grad().defined());
    EXPECT_TRUE(model->b->weight.grad().allclose(torch::full({3, 2}, 1.5)));
    model(x, true, true);
    model(x, true, false).sum().backward();
    EXPECT_TRUE(model->a->weight.grad().allclose(torch::full({3, 2}, 1.5)));
  });
}

TEST(DataParallel, ARankThatUsesNothingDoesNotHoldTheOthersUp) {
  run_on_threads(2, [](const auto& group) {
    DataParallel model(TwoLayers(), {.process_group = group, .find_unused_parameters = true});
    const bool uses = group->getRank() == 0;
    auto output = model(input_of(0), uses, uses);
    if (uses) output.sum().backward();
    EXPECT_TRUE(model->a->weight.grad().allclose(torch::full({3, 2}, 0.5)));
  });
}

TEST(DataParallel, AMissingGradientIsAnErrorThatNamesItAndTheRemedy) {
  const auto errors = errors_on_threads(2, [](const auto& group) {
    DataParallel model(TwoLayers(), {.process_group = group});
    model(input_of(0), true, false).sum().backward();
    model(input_of(0), true, false);
  });
  EXPECT_THAT(errors,
              Each(AllOf(HasSubstr("b.weight, b.bias"), HasSubstr("find_unused_parameters"))));
}

TEST(DataParallel, ARankThatWentAnotherWayDoesNotLetTheOthersWait) {
  const auto errors = errors_on_threads(2, [](const auto& group) {
    DataParallel model(TwoLayers(), {.process_group = group});
    model(input_of(0), true, group->getRank() == 0).sum().backward();
    model(input_of(0), true, true);
  });
  EXPECT_THAT(errors[0], HasSubstr("aborted"));
  EXPECT_THAT(errors[1], HasSubstr("b.weight"));
}

/// Its gradients would be this rank's only.
TEST(DataParallel, ABackwardThatNoForwardOfItLedToIsAnError) {
  const auto inside = errors_on_threads(2, [](const auto& group) {
    TwoLayers net;
    DataParallel model(net, {.process_group = group});
    net->forward(input_of(0), true, true).sum().backward();
  });
  const auto again = errors_on_threads(2, [](const auto& group) {
    DataParallel model(TwoLayers(), {.process_group = group});
    const auto loss = model(input_of(0), true, true).sum();
    loss.backward({}, /*retain_graph=*/true);
    loss.backward();
  });
  for (const auto& errors : {inside, again}) {
    EXPECT_THAT(errors[0] + errors[1],
                AllOf(HasSubstr("DataParallel: backward produced a gradient of '"),
                      HasSubstr("no_sync()")));
  }
}

TEST(DataParallel, OneModuleMayBeInTwoOfThem) {
  run_on_threads(2, [](const auto& group) {
    TwoLayers net;
    DataParallel one(net, {.process_group = group});
    DataParallel other(net, {.process_group = group});
    for (int round = 0; round < 2; ++round) {
      for (auto* model : {&one, &other}) {
        net->zero_grad();
        (*model)(input_of(group->getRank()), true, true).sum().backward();
        EXPECT_TRUE(net->a->weight.grad().allclose(torch::full({3, 2}, 1.5)));
      }
    }
  });
}

TEST(DataParallel, ComplexGradientsAreTheMeanToo) {
  const auto train = [](const auto& group) {
    struct Phase : torch::nn::Module {
      torch::Tensor turn = register_parameter("turn", torch::ones({3}, torch::kComplexFloat));
      torch::Tensor bias = register_parameter("bias", torch::ones({3}));
      torch::Tensor forward(double scale) { return torch::real(turn * scale + bias).sum(); }
    };
    DataParallel model(std::make_shared<Phase>(), {.process_group = group});
    model(group->getRank() + 1.0).backward();
    const auto expected = torch::full({3}, c10::complex<float>(1.5F, 0), torch::kComplexFloat);
    EXPECT_TRUE(model->turn.grad().allclose(expected));
    EXPECT_TRUE(model->bias.grad().allclose(torch::ones({3})));
    EXPECT_EQ(model.stats().bytes, 3 * 8 + 3 * 4);
  };
  run_on_threads(2, train);
  run_on_loopback(2, train);
}

TEST(DataParallel, SeveralForwardsMayShareABackward) {
  run_on_threads(2, [](const auto& group) {
    DataParallel model(TwoLayers(), {.process_group = group, .find_unused_parameters = true});
    const auto x = input_of(group->getRank());
    (model(x, true, false) + model(x, false, true)).sum().backward();
    EXPECT_TRUE(model->a->weight.grad().allclose(torch::full({3, 2}, 1.5)));
    EXPECT_TRUE(model->b->weight.grad().allclose(torch::full({3, 2}, 1.5)));
  });
}

TEST(DataParallel, NoSyncAccumulatesUntilTheNextSynchronizedBackward) {
  run_on_threads(2, [](const auto& group) {
    DataParallel model(TwoLayers(), {.process_group = group});
    const double rank = group->getRank();
    for (int round = 0; round < 2; ++round) {
      model->zero_grad(/*set_to_none=*/round == 0);
      {
        const auto alone = model.no_sync();
        model(input_of(group->getRank()), true, true).sum().backward();
        EXPECT_TRUE(model->a->weight.grad().allclose(torch::full({3, 2}, rank + 1)));
      }
      model(input_of(group->getRank()), true, true).sum().backward();
      EXPECT_TRUE(model->a->weight.grad().allclose(torch::full({3, 2}, 3.0)));
    }
    EXPECT_EQ(model.stats().synchronized, 2);
  });
}

TEST(DataParallel, AccumulatedPartsGiveTheGradientOfTheWholeBatch) {
  run_on_threads(2, [](const auto& group) {
    const auto inputs = torch::arange(16, torch::kFloat32).view({8, 2}) + group->getRank();
    const auto targets = torch::ones({8, 3});
    DataParallel model(torch::nn::Linear(2, 3), {.process_group = group});
    const auto loss = [](const auto& output, const auto& target) {
      return torch::mse_loss(output, target);
    };
    const auto whole = accumulate(model, inputs, targets, 1, loss);
    const auto expected = model->weight.grad().clone();
    model->zero_grad();
    const auto parts = accumulate(model, inputs, targets, 4, loss);
    EXPECT_TRUE(model->weight.grad().allclose(expected, 1e-4));
    EXPECT_NEAR(parts.template item<double>(), whole.template item<double>(), 1e-2);
    EXPECT_EQ(model.stats().synchronized, 2);
  });
}

TEST(Accumulate, ABatchThatDoesNotDivideIsRefused) {
  EXPECT_EQ(micro_batch_size(12, 4), 3);
  try {
    micro_batch_size(10, 4);
    FAIL() << "10 samples went into 4 parts";
  } catch (const Exception& error) {
    EXPECT_EQ(error.kind(), ErrorKind::invalid_argument);
    EXPECT_THAT(error.what(), HasSubstr("10 samples per rank is not divisible into 4"));
  }
  EXPECT_THROW(micro_batch_size(2, 4), Exception);
  EXPECT_THROW(micro_batch_size(2, 0), Exception);
}

TEST(DataParallel, AWorldOfOneDoesNothing) {
  run_on_threads(1, [](const auto& group) {
    DataParallel model(TwoLayers(), {.process_group = group});
    model(input_of(0), true, false).sum().backward();
    model(input_of(0), true, false).sum().backward();
    EXPECT_FALSE(model->b->weight.grad().defined());
    EXPECT_EQ(model.stats().operations, 0);
  });
}

TEST(DataParallel, NoGroupIsAnError) {
  EXPECT_THROW(DataParallel(TwoLayers(), DataParallelOptions{}), Exception);
}

TEST(DataParallel, FrozenParametersStayOut) {
  run_on_threads(2, [](const auto& group) {
    TwoLayers layers;
    layers->a->weight.set_requires_grad(false);
    DataParallel model(layers, {.process_group = group});
    model(input_of(0), true, true).sum().backward();
    EXPECT_FALSE(layers->a->weight.grad().defined());
    EXPECT_EQ(model.stats().bytes, (3 + 3 * 2 + 3) * 4);
  });
}

TEST(DataParallel, AParameterThatIsFrozenNoMoreIsAnErrorThatNamesIt) {
  run_on_threads(2, [](const auto& group) {
    TwoLayers layers;
    layers->a->weight.set_requires_grad(false);
    DataParallel model(layers, {.process_group = group});
    model(input_of(0), true, true).sum().backward();
    layers->a->weight.set_requires_grad(true);
    try {
      model(input_of(0), true, true);
      ADD_FAILURE() << "the gradient of a.weight would have stayed on this rank";
    } catch (const Exception& error) {
      EXPECT_THAT(error.what(), HasSubstr("'a.weight' is trainable, but was absent or frozen"));
    }
  });
}

TEST(DataParallel, HooksGoWithIt) {
  run_on_threads(2, [](const auto& group) {
    TwoLayers mine;
    { DataParallel model(mine, {.process_group = group}); }
    mine->forward(input_of(0), true, true).sum().backward();
    EXPECT_TRUE(mine->a->bias.grad().equal(torch::ones({3})));
  });
}

TEST(DataParallel, GradientsKeepTheStridesOfTheirParameters) {
  run_on_threads(2, [](const auto& group) {
    torch::nn::Conv2d conv(torch::nn::Conv2dOptions(2, 4, 3));
    conv->weight.set_data(conv->weight.data().contiguous(torch::MemoryFormat::ChannelsLast));
    DataParallel model(conv, {.process_group = group});
    model(torch::ones({1, 2, 5, 5})).sum().backward();
    EXPECT_EQ(conv->weight.grad().strides(), conv->weight.strides());
    EXPECT_TRUE(conv->weight.grad().allclose(torch::full({4, 2, 3, 3}, 9.0)));
  });
}

TEST(OutputTensors, AreFoundInWhatForwardReturns) {
  const auto t = torch::ones({1});
  EXPECT_EQ(output_tensors(t).size(), 1u);
  EXPECT_EQ(output_tensors(std::vector{t, t}).size(), 2u);
  EXPECT_EQ(output_tensors(std::tuple(t, 3, std::pair(t, std::optional(t)))).size(), 3u);
  EXPECT_EQ(output_tensors(std::map<std::string, torch::Tensor>{{"a", t}}).size(), 1u);
}

}  // namespace
}  // namespace gradwire::test
