#include "gradwire/train/pipeline/split_backward.h"

#include <algorithm>
#include <atomic>
#include <deque>
#include <functional>
#include <limits>
#include <vector>

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "gradwire/base/error.h"
#include "gradwire/base/random.h"
#include "gradwire/host/named_tensor.h"
#include "gradwire/train/activation/activation_checkpoint.h"
#include "gradwire/train/parallel_mesh.h"
#include "gradwire/train/pipeline/layers.h"
#include "gradwire/train/pipeline/pipeline.h"
#include "tests/train/pipeline_model.h"

namespace gradwire::test {
namespace {

struct Gradients {
  torch::Tensor input;
  std::vector<torch::Tensor> parameters;
};

using Net = std::function<torch::Tensor(const torch::Tensor&)>;

/// Gradients after two micro-batches, in one part or in two.
Gradients gradients(const torch::nn::Module& module, const Net& net, const torch::Tensor& example,
                    bool split, bool expect_deferred) {
  for (const auto& parameter : module.parameters()) parameter.mutable_grad().reset();
  Gradients result;
  for (int i = 0; i < 2; ++i) {
    const auto input = (example + i).detach().requires_grad_();
    const auto output = net(input);
    const auto gradient = torch::cos(output.detach());
    SplitBackward backward({output}, {input});
    result.input = (split ? backward.inputs({gradient}) : backward.all({gradient})).front();
    if (split && i == 0) {
      const bool none = std::ranges::none_of(module.parameters(),
                                             [](const auto& p) { return p.grad().defined(); });
      EXPECT_EQ(none, expect_deferred);
    }
    if (split) backward.weights();
  }
  for (const auto& parameter : module.parameters()) result.parameters.push_back(parameter.grad());
  return result;
}

/// Returns true if both are equal, or there is neither.
bool equal_or_none(const torch::Tensor& a, const torch::Tensor& b) {
  return a.defined() && b.defined() ? torch::equal(a, b) : a.defined() == b.defined();
}

void expect_equal_parts(const torch::nn::Module& module, const Net& net,
                        const torch::Tensor& example, bool deferred = true) {
  const Gradients whole = gradients(module, net, example, false, deferred);
  std::vector<torch::Tensor> kept;
  for (const auto& gradient : whole.parameters) kept.push_back(gradient.clone());
  const Gradients parts = gradients(module, net, example, true, deferred);
  EXPECT_TRUE(equal_or_none(whole.input, parts.input));
  for (std::size_t i = 0; i < kept.size(); ++i) {
    EXPECT_TRUE(torch::equal(kept[i], parts.parameters[i])) << i;
  }
}

TEST(SplitBackward, HasTheBitsOfOneBackward) {
  torch::manual_seed(1);
  torch::nn::Sequential dense(torch::nn::Linear(6, 9), torch::nn::GELU(),
                              torch::nn::LayerNorm(torch::nn::LayerNormOptions({9})),
                              torch::nn::Linear(9, 4));
  expect_equal_parts(
      *dense, [&](const auto& x) { return dense->forward(x); }, torch::randn({5, 6}));
  torch::nn::Sequential convolutions(
      torch::nn::Conv2d(torch::nn::Conv2dOptions(2, 3, 3).padding(1)), torch::nn::BatchNorm2d(3),
      torch::nn::ReLU(), torch::nn::Conv2d(torch::nn::Conv2dOptions(3, 2, 3).stride(2)));
  expect_equal_parts(
      *convolutions, [&](const auto& x) { return convolutions->forward(x); },
      torch::randn({2, 2, 8, 8}));
}

/// Group norm's node has outputs of which nothing uses the gradients.
TEST(SplitBackward, ANodeMayReceiveNoGradientOfSomeOutputs) {
  torch::manual_seed(2);
  torch::nn::Sequential net(torch::nn::Conv2d(2, 4, 1), torch::nn::GroupNorm(2, 4),
                            torch::nn::Conv2d(4, 2, 1));
  expect_equal_parts(
      *net, [&](const auto& x) { return net->forward(x); }, torch::randn({3, 2, 4, 4}));
}

TEST(SplitBackward, FollowsResidualsAndSkipsUnusedParameters) {
  torch::manual_seed(2);
  torch::nn::Linear first(4, 4);
  torch::nn::Linear second(4, 4);
  const auto residual = [&](const torch::Tensor& x) {
    const auto sum = x + torch::tanh(first(x));
    return sum * second(sum);
  };
  const torch::nn::Sequential used(first, second);
  const auto example = torch::randn({3, 4});
  expect_equal_parts(*used, residual, example);
  torch::nn::Linear unused(4, 4);
  const torch::nn::Sequential all(first, second, unused);
  EXPECT_TRUE(gradients(*all, residual, example, true, true).input.defined());
  EXPECT_FALSE(unused->weight.grad().defined());
}

TEST(SplitBackward, HasSeveralInputsAndOutputs) {
  torch::manual_seed(6);
  torch::nn::Linear first(4, 4), second(4, 4);
  const torch::nn::Sequential all(first, second);
  const auto run = [&](bool split) {
    for (const auto& parameter : all->parameters()) parameter.mutable_grad().reset();
    const auto a = torch::linspace(-1, 1, 12).view({3, 4}).requires_grad_();
    const auto b = torch::linspace(0, 2, 12).view({3, 4}).requires_grad_();
    const auto middle = torch::tanh(first(a));
    const auto output = second(middle * b);
    SplitBackward backward({output, middle}, {a, b});
    const std::vector<torch::Tensor> gradients{torch::cos(output.detach()),
                                               torch::sin(middle.detach())};
    auto results = split ? backward.inputs(gradients) : backward.all(gradients);
    if (split) {
      EXPECT_FALSE(first->weight.grad().defined());
      backward.weights();
    }
    for (const auto& parameter : all->parameters()) results.push_back(parameter.grad().clone());
    return results;
  };
  const auto whole = run(false), parts = run(true);
  ASSERT_EQ(whole.size(), parts.size());
  for (std::size_t i = 0; i < whole.size(); ++i) {
    EXPECT_TRUE(torch::equal(whole[i], parts[i])) << i;
  }
}

TEST(SplitBackward, ComputesASharedParameterAtOnce) {
  torch::manual_seed(3);
  torch::nn::Linear shared(4, 4);
  expect_equal_parts(
      *shared, [&](const auto& x) { return shared(torch::tanh(shared(x))); }, torch::randn({3, 4}),
      /*deferred=*/false);
}

TEST(SplitBackward, LeavesParametersThatTheInputDoesNotReachToTheSecondPart) {
  torch::manual_seed(5);
  torch::nn::Linear first(4, 4), second(4, 4);
  const torch::nn::Sequential both(first, second);
  const auto example = torch::randn({3, 4});
  const auto behind = [&](const torch::Tensor& x) {
    return second(torch::tanh(first(x.detach())));
  };
  expect_equal_parts(*both, behind, example);
  EXPECT_TRUE(first->weight.grad().defined());
  expect_equal_parts(
      *both, [&](const auto& x) { return second(x) + behind(x); }, example, /*deferred=*/false);
}

TEST(SplitBackward, ComputesAtOnceWhatRunsOnce) {
  torch::manual_seed(8);
  torch::nn::Linear layer(4, 4);
  const auto example = torch::randn({3, 4});
  int hooks = 0;
  const auto hooked = [&](const torch::Tensor& x) {
    const auto output = layer(x);
    output.register_hook([&hooks](const torch::Tensor& gradient) {
      ++hooks;
      return gradient / 2;
    });
    return torch::tanh(output);
  };
  expect_equal_parts(*layer, hooked, example, /*deferred=*/false);
  EXPECT_EQ(hooks, 4) << "two micro-batches, in one part and in two";
  expect_equal_parts(
      *layer, [&](const auto& x) { return checkpointed(layer, x); }, example, /*deferred=*/false);
}

TEST(SplitBackward, TheFirstStageHasNoGradientOfItsInput) {
  torch::manual_seed(4);
  torch::nn::Linear layer(4, 2);
  const auto input = torch::randn({3, 4});
  SplitBackward backward({layer(input)}, {});
  EXPECT_TRUE(backward.inputs({torch::ones({3, 2})}).empty());
  EXPECT_FALSE(layer->weight.grad().defined());
  backward.weights();
  EXPECT_TRUE(torch::equal(layer->bias.grad(), torch::full({2}, 3.0F)));
}

TEST(SplitBackward, AnOutputThatNeedsNoGradientHasNone) {
  const auto input = torch::ones({2}).requires_grad_();
  SplitBackward backward({torch::ones({2})}, {input});
  EXPECT_FALSE(backward.all({torch::ones({2})}).front().defined());
  SplitBackward split({torch::ones({2})}, {input});
  EXPECT_FALSE(split.inputs({torch::ones({2})}).front().defined());
  split.weights();
}

constexpr std::int64_t kWidth = 4;

/// A custom function of a layer's parameter.
struct ScaledBy : torch::autograd::Function<ScaledBy> {
  static torch::Tensor forward(torch::autograd::AutogradContext* context, const torch::Tensor& x,
                               const torch::Tensor& weight) {
    context->save_for_backward({x, weight});
    return x * weight;
  }
  static torch::autograd::variable_list backward(torch::autograd::AutogradContext* context,
                                                 const torch::autograd::variable_list& gradients) {
    const auto saved = context->get_saved_variables();
    return {gradients[0] * saved[1], (gradients[0] * saved[0]).sum(0)};
  }
};

/// A layer that computes a random list of values, each from one before it, and adds all up.
class RandomLayerImpl : public torch::nn::Module {
 public:
  /// `cuts`: some values do not lead to their inputs by autograd.
  RandomLayerImpl(std::uint64_t seed, bool cuts) {
    Random random(seed);
    for (int i = 0; i < 4; ++i) {
      const bool is_shared = !weights_.empty() && random.one_in(3);
      if (!is_shared) add_weight(seed);
      steps_.push_back({.kind = static_cast<int>(random.below(cuts ? kKinds : kFirstCut)),
                        .from = random.next(),
                        .other = random.next(),
                        .weight = is_shared ? random.below(weights_.size()) : weights_.size() - 1});
    }
  }

  std::vector<torch::Tensor> values_of(std::vector<torch::Tensor> values) {
    for (const Step& step : steps_) {
      const torch::Tensor from = values[step.from % values.size()];
      values.push_back(value_of(step, from, values[step.other % values.size()]));
    }
    return values;
  }

  torch::Tensor forward(const torch::Tensor& x) { return torch::stack(values_of({x})).mean(0); }

  /// Calls of hooks on tensors.
  int hooks() const { return hooks_; }

 private:
  struct Step {
    int kind = 0;
    std::uint64_t from = 0, other = 0;
    std::size_t weight = 0;
  };
  static constexpr int kFirstCut = 11, kKinds = 14;

  /// Values of the layer's own, because ranks are threads with one generator.
  void add_weight(std::uint64_t seed) {
    const auto i = std::to_string(weights_.size());
    const auto values = torch::arange(kWidth * (kWidth + 1), torch::kFloat32) +
                        static_cast<double>(seed % 100) + static_cast<double>(weights_.size());
    const auto parts = torch::sin(values * 1.7).split({kWidth * kWidth, kWidth});
    weights_.push_back(register_parameter("weight" + i, parts[0].clone().view({kWidth, kWidth})));
    biases_.push_back(register_parameter("bias" + i, parts[1].clone()));
  }

  torch::Tensor hooked(const torch::Tensor& x) {
    if (!x.requires_grad()) return x;
    x.register_hook([this](const torch::Tensor& gradient) {
      ++hooks_;
      return gradient * 0.5;
    });
    return x;
  }

  torch::Tensor value_of(const Step& step, const torch::Tensor& from, const torch::Tensor& other) {
    const torch::Tensor weight = weights_[step.weight], bias = biases_[step.weight];
    const auto dense = [weight, bias](const torch::Tensor& x) {
      return torch::tanh(at::linear(x, weight, bias));
    };
    const auto both = [&] { return at::linear(from, weight, bias); };
    switch (step.kind) {
      case 0:
      case 1:
        return dense(from);
      case 2:
        return checkpointed(dense, from);
      case 3:  // Micro-batches differ.
        return from.sum().item<double>() > 0 ? checkpointed(dense, from) : dense(from);
      case 4:
        return dense(hooked(from * 2));
      case 5:
        return torch::tanh(hooked(both()));
      case 6: {
        const torch::Tensor kept = both();
        if (kept.requires_grad()) kept.retain_grad();
        return kept;
      }
      case 7:
        return dense((from * 8).round() / 8 + from) + other;
      case 8:  // A parameter twice, in a function of parameters alone.
        return from * torch::tanh(bias * torch::tanh(bias)) + weight.sum();
      case 9:
        return ScaledBy::apply(from, bias) + weight.sum();
      case 10: {
        const torch::Tensor copy = from.clone();
        copy.slice(1, 0, 2).mul_(bias.slice(0, 0, 2));
        return copy + weight.sum();
      }
      case 11:
        return dense(from.detach());
      case 12:
        return checkpointed(dense, from.detach());
      default: {
        const torch::NoGradGuard no_grad;
        return dense(from);
      }
    }
  }

  std::vector<Step> steps_;
  std::vector<torch::Tensor> weights_, biases_;
  std::atomic<int> hooks_ = 0;
};
TORCH_MODULE(RandomLayer);

/// A random layer that gets a skip connection.
class TwoInputsImpl : public torch::nn::Module {
 public:
  explicit TwoInputsImpl(const RandomLayer& layer) : layer_(register_module("layer", layer)) {}
  torch::Tensor forward(const torch::Tensor& x, const torch::Tensor& skipped) {
    return torch::stack(layer_->values_of({x, skipped})).mean(0);
  }

 private:
  RandomLayer layer_;
};
TORCH_MODULE(TwoInputs);

/// Gradients of two inputs and of the parameters, and calls of hooks, after four micro-batches,
/// each in one part or in two, of which the second may be later.
std::vector<torch::Tensor> random_gradients(std::uint64_t seed, bool split) {
  constexpr int kMicroBatches = 4;
  RandomLayer layer(seed, /*cuts=*/true);
  Random random(seed), order(seed);
  std::vector<torch::Tensor> results;
  std::deque<SplitBackward> later;
  for (int i = 0; i < kMicroBatches; ++i) {
    std::vector<torch::Tensor> inputs;
    for (const double phase : {0.3, 2.0}) {
      const auto values = torch::arange(3 * kWidth, torch::kFloat32).view({3, kWidth});
      inputs.push_back(torch::cos(values * phase + i).requires_grad_());
    }
    const auto values = layer->values_of(inputs);
    std::vector<torch::Tensor> outputs{torch::stack(values).mean(0), values.back()};
    outputs.push_back(values[random.below(values.size())]);
    std::vector<torch::Tensor> gradients;
    for (const auto& output : outputs) gradients.push_back(torch::sin(output.detach() * 3));
    SplitBackward backward(outputs, inputs);
    if (split && backward.is_whole()) {
      for (; !later.empty(); later.pop_front()) later.front().weights();
    }
    for (auto& gradient : split ? backward.inputs(gradients) : backward.all(gradients)) {
      results.push_back(gradient.defined() ? gradient.clone() : gradient);
    }
    if (split) later.push_back(std::move(backward));
    while (!later.empty() && order.one_in(2)) {
      later.front().weights();
      later.pop_front();
    }
  }
  for (; !later.empty(); later.pop_front()) later.front().weights();
  for (const auto& parameter : layer->parameters()) results.push_back(parameter.grad());
  results.push_back(torch::tensor(layer->hooks()));
  return results;
}

TEST(SplitBackward, OfRandomLayersHasTheBitsOfOneBackward) {
  for (std::uint64_t seed = 0; seed < 300; ++seed) {
    const auto whole = random_gradients(seed, false), parts = random_gradients(seed, true);
    ASSERT_EQ(whole.size(), parts.size());
    for (std::size_t i = 0; i < whole.size(); ++i) {
      ASSERT_TRUE(equal_or_none(whole[i], parts[i])) << "seed " << seed << ", " << i;
    }
  }
}

struct SplitCase {
  std::uint64_t seed = 0;
  std::string schedule;
  int pipeline = 1;
  int data = 1;
  int zero_stage = 0;
  bool cuts = false;
};

/// Random layers, two of which get what an earlier one returns too.
Layers random_layers(const SplitCase& what) {
  Layers layers;
  for (std::uint64_t i = 0; i < 8; ++i) {
    const std::uint64_t seed = mixed_seed({what.seed, i});
    layers.add(fmt::format("layer{}", i), [seed, what, takes_two = i == 3 || i == 6] {
      RandomLayer layer(seed, what.cuts);
      if (!takes_two) return torch::nn::AnyModule(layer);
      return torch::nn::AnyModule(TwoInputs(layer));
    });
  }
  return layers.skip("layer0", "layer3").skip("layer2", "layer6");
}

/// Parameters of all replicas after two steps, or why training was refused.
std::pair<NamedValues, std::string> train_random_layers(const SplitCase& what) {
  TrainedParts trained;
  try {
    on_ranks(what.pipeline * what.data, [&](const ProcessGroup& world) {
      const ParallelMesh mesh(world, {.data = what.data, .pipeline = what.pipeline});
      auto options = pipeline_options(mesh.pipeline(), what.schedule, 4);
      options.data = {.process_group = mesh.data(), .zero_stage = what.zero_stage};
      options.loss = squared_error_sum();
      Pipeline model(random_layers(what), options);
      for (int step = 0; step < 2; ++step) {
        const auto batch = torch::sin(torch::arange(8 * kWidth, torch::kFloat32) + 10 * step +
                                      mesh.position().data);
        model.train_step(batch.view({8, kWidth}), torch::ones({8, kWidth}));
      }
      NamedValues values;
      for (auto& [name, value] : state_values(model)) {
        values[fmt::format("{} {}", mesh.position().data, name)] = value;
      }
      trained.take(values);
    });
  } catch (const Exception& e) {
    return {{}, e.what()};
  }
  return {trained.values(), ""};
}

/// Compares a schedule that computes gradients of inputs and of weights apart with one that does
/// not. Returns true if both train.
bool expect_split_as_whole(SplitCase what, const std::string& whole) {
  const std::string text = fmt::format("seed {}, {}, {} x {}, ZeRO {}", what.seed, what.schedule,
                                       what.pipeline, what.data, what.zero_stage);
  const auto [actual, refusal] = train_random_layers(what);
  what.schedule = whole;
  const auto [expected, expected_refusal] = train_random_layers(what);
  EXPECT_EQ(refusal.empty(), expected_refusal.empty()) << text << ": " << refusal;
  expect_same(actual, expected, text);
  return refusal.empty();
}

TEST(SplitBackward, PipelinesOfRandomLayersTrainAsWithWholeBackwards) {
  for (std::uint64_t seed = 0; seed < 6; ++seed) {
    for (const bool cuts : {false, true}) {
      const auto equal = [&](const std::string& schedule, int ranks, const std::string& whole) {
        EXPECT_TRUE(expect_split_as_whole(
            {.seed = seed, .schedule = schedule, .pipeline = ranks, .cuts = cuts}, whole));
      };
      equal("zero_bubble", 3, "gpipe");
      equal("zero_bubble_h1", 2, "gpipe");
      equal("auto", 3, "gpipe");
      equal("zero_bubble_v", 2, "interleaved:2");
    }
  }
}

/// Recomputes micro-batches whose first column is positive: their backward is not split.
struct RecomputesSomeImpl : torch::nn::Module {
  explicit RecomputesSomeImpl(int seed) {
    const torch::NoGradGuard no_grad;
    linear->weight.copy_(torch::sin(torch::arange(16) * 1.3 + seed).view({4, 4}));
    linear->bias.zero_();
  }
  torch::Tensor forward(const torch::Tensor& x) {
    const auto compute = [this](const torch::Tensor& values) {
      return torch::tanh(linear(values));
    };
    const torch::Tensor flag = x.narrow(1, 0, 1), values = x.narrow(1, 1, 4);
    const bool recomputes = flag.sum().item<double>() > 0;
    return torch::cat({flag, recomputes ? checkpointed(compute, values) : compute(values)}, 1);
  }
  torch::nn::Linear linear{register_module("linear", torch::nn::Linear(4, 4))};
};
TORCH_MODULE(RecomputesSome);

/// Parameters of three stages after two steps; bit i of `recomputed`: of micro-batch i.
NamedValues train_recomputing_some(const std::string& schedule, int recomputed) {
  constexpr int kMicroBatches = 6;
  TrainedParts trained;
  on_ranks(3, [&](const ProcessGroup& group) {
    Layers layers;
    for (int i = 0; i < 3; ++i)
      layers.add(fmt::format("layer{}", i), [i] { return RecomputesSome(i); });
    auto options = pipeline_options(group, schedule, kMicroBatches);
    options.loss = squared_error_sum();
    Pipeline model(layers, options);
    for (int step = 0; step < 2; ++step) {
      const auto batch = torch::sin(torch::arange(5 * kMicroBatches, torch::kFloat32) * 2.1 + step)
                             .view({kMicroBatches, 5});
      for (int i = 0; i < kMicroBatches; ++i) batch[i][0] = recomputed >> i & 1;
      model.train_step(batch, torch::ones({kMicroBatches, 5}));
    }
    trained.take(state_values(model));
  });
  return trained.values();
}

TEST(SplitBackward, GradientsOfWeightsAreAddedInTheOrderOfTheMicroBatches) {
  for (const int recomputed : {0b000100, 0b010100, 0b101000, 0b110110}) {
    expect_same(train_recomputing_some("zero_bubble", recomputed),
                train_recomputing_some("gpipe", recomputed), fmt::format("{:b}", recomputed));
  }
}

/// A parameter without a gradient is refused there, with every schedule.
TEST(SplitBackward, ReplicasOfRandomLayersTrainAsWithWholeBackwards) {
  int trained = 0;
  for (std::uint64_t seed = 0; seed < 8; ++seed) {
    for (const int zero_stage : {0, 1, 2, 3}) {
      trained += expect_split_as_whole({.seed = seed,
                                        .schedule = "zero_bubble",
                                        .pipeline = 2,
                                        .data = 2,
                                        .zero_stage = zero_stage,
                                        .cuts = seed % 4 == 3},
                                       "gpipe");
    }
  }
  EXPECT_GE(trained, 16);
}

/// The least largest stage over all cuts.
double best_of_all(const std::vector<double>& weights, int stages, std::size_t begin = 0) {
  double sum = 0;
  if (stages == 1) {
    for (std::size_t i = begin; i < weights.size(); ++i) sum += weights[i];
    return sum;
  }
  double best = std::numeric_limits<double>::infinity();
  for (std::size_t end = begin + 1; end + static_cast<std::size_t>(stages) <= weights.size() + 1;
       ++end) {
    sum += weights[end - 1];
    best = std::min(best, std::max(sum, best_of_all(weights, stages - 1, end)));
  }
  return best;
}

TEST(BalancedCut, IsTheBestOfAllCuts) {
  Random random(5);
  for (int i = 0; i < 300; ++i) {
    std::vector<double> weights(1 + random.below(9));
    for (double& weight : weights) weight = static_cast<double>(random.below(20));
    const int stages = 1 + static_cast<int>(random.below(weights.size()));
    const auto cut = balanced_cut(weights, stages);
    ASSERT_EQ(cut.size(), static_cast<std::size_t>(stages));
    double largest = 0;
    std::size_t layer = 0;
    for (const std::size_t count : cut) {
      EXPECT_GE(count, 1U);
      double sum = 0;
      for (std::size_t k = 0; k < count; ++k) sum += weights[layer++];
      largest = std::max(largest, sum);
    }
    EXPECT_EQ(layer, weights.size());
    EXPECT_EQ(largest, best_of_all(weights, stages));
  }
  EXPECT_THROW(balanced_cut({1, 2}, 3), Exception);
}

}  // namespace
}  // namespace gradwire::test
