#include <cmath>
#include <filesystem>
#include <mutex>
#include <numbers>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "gradwire/base/error.h"
#include "gradwire/data/fashion_mnist.h"
#include "gradwire/train/checkpoint/checkpoint.h"
#include "gradwire/train/checkpoint/load.h"
#include "gradwire/train/pipeline/pipeline.h"
#include "gradwire/train/pipeline/weight_prediction.h"
#include "tests/support/temporary_folder.h"
#include "tests/train/asynchronous_model.h"

namespace gradwire::test {
namespace {

using ::testing::HasSubstr;

TEST(AsynchronousPipeline, HasTheBitsOfAProcessThatKeepsAllVersions) {
  for (const std::string weights :
       {"stash", "2bw", "spectrain", "lwp_v", "lwp_w", "spike_compensation", "newest"}) {
    for (const int stages : {1, 2, 3, 4}) {
      expect_as_with_all_versions({.weights = weights, .stages = stages});
    }
  }
}

TEST(AsynchronousPipeline, HasThoseBitsWithAdamToo) {
  for (const std::string weights : {"stash", "2bw", "spectrain", "lwp_v", "lwp_w"}) {
    expect_as_with_all_versions({.weights = weights, .stages = 4, .optimizer = small_adam});
  }
}

TEST(AsynchronousPipeline, HasThoseBitsForAnyNumberOfMicroBatches) {
  for (const int micro_batches : {1, 2, 7}) {
    for (const std::string weights : {"stash", "2bw", "spectrain"}) {
      expect_as_with_all_versions({.weights = weights, .micro_batches = micro_batches});
    }
  }
}

TEST(AsynchronousPipeline, DrainsAfterAPromiseOfTheNextBatch) {
  at::set_num_threads(1);
  for (const std::string weights : {"stash", "2bw"}) {
    const AsyncCase what{.weights = weights, .stages = 3, .steps = 6, .drained_at = 3};
    TrainedParts trained;
    on_async_meshes(what, [&](Pipeline& model, const ParallelMesh&) {
      for (int step = 0; step < what.steps; ++step) {
        const auto batch = what.batch(0, step);
        if (step == what.drained_at) model.finish();
        model.train_step(batch.inputs, batch.targets, {.next_samples = batch.inputs.size(0)});
      }
      model.finish();
      NamedValues values = state_values(model);
      std::erase_if(values, [](const auto& v) { return v.first.starts_with("optimizer."); });
      trained.take(values);
    });
    expect_same(trained.values(), AllVersions(what).run().parameters.front(), weights);
  }
}

TEST(AsynchronousPipeline, MethodsDiffer) {
  const AsyncCase stash{};
  const NamedValues plain = AllVersions(stash).run().parameters.front();
  for (const std::string weights :
       {"2bw", "spectrain", "lwp_v", "lwp_w", "spike_compensation", "newest"}) {
    AsyncCase what = stash;
    what.weights = weights;
    const NamedValues other = AllVersions(what).run().parameters.front();
    EXPECT_FALSE(torch::equal(other.at("input.weight"), plain.at("input.weight"))) << weights;
  }
}

TEST(AsynchronousPipeline, KeepsAsManyCopiesAsItsRuleSays) {
  using ::testing::ElementsAre;
  const auto copies = [](const std::string& weights) {
    return run_async({.weights = weights}).max_copies;
  };
  EXPECT_THAT(copies("stash"), ElementsAre(4, 3, 2, 1));
  EXPECT_THAT(copies("2bw"), ElementsAre(2, 2, 2, 2));
  EXPECT_THAT(copies("spectrain"), ElementsAre(2, 2, 2, 2));
  EXPECT_THAT(copies("lwp_v"), ElementsAre(2, 2, 2, 2));
  EXPECT_THAT(copies("lwp_w"), ElementsAre(3, 3, 3, 3));
  EXPECT_THAT(copies("spike_compensation"), ElementsAre(1, 1, 1, 1));
  EXPECT_THAT(copies("newest"), ElementsAre(1, 1, 1, 1));
}

/// w x for one weight w, in float64.
struct ScaleImpl : torch::nn::Module {
  ScaleImpl() { weight = register_parameter("weight", torch::ones({1}, torch::kFloat64)); }
  torch::Tensor forward(const torch::Tensor& x) { return x * weight; }
  torch::Tensor weight;
};
TORCH_MODULE(Scale);

/// Minimizes w^2 / 2 in the first of `stages` stages. Returns by how much the amplitude of w grows
/// from one thousand updates to a later one.
double growth(int stages, const std::string& weights, double rate) {
  double ratio = 0;
  on_async_ranks(stages, [&](const ProcessGroup& group) {
    Layers layers;
    layers.add("scale", [] { return Scale(); });
    for (int i = 1; i < stages; ++i) {
      layers.add(fmt::format("pass{}", i), [] {
        return torch::nn::Functional([](const torch::Tensor& x) { return x * 1; });
      });
    }
    const auto sgd = [rate](TensorList parameters) {
      return std::make_unique<torch::optim::SGD>(std::move(parameters),
                                                 torch::optim::SGDOptions(rate));
    };
    const auto half_square = [](const torch::Tensor& output, const torch::Tensor&) {
      return output.pow(2).sum() / 2;
    };
    constexpr std::int64_t kUpdates = 100;  // A step's.
    Pipeline model(layers, {.process_group = group,
                            .micro_batches = kUpdates,
                            .schedule = "pipedream",
                            .weights = weights,
                            .optimizer = sgd,
                            .loss = {.sum = half_square}});
    const auto ones = torch::ones({kUpdates, 1}, torch::kFloat64);
    std::vector<double> losses;  // Each sums 100 updates: more than a period of the oscillation.
    for (int i = 0; i < 40; ++i) losses.push_back(model.train_step(ones, ones).sum);
    model.finish();
    if (model.has_last_stage()) ratio = losses[39] / losses[10];
  });
  return ratio;
}

/// Gradient descent with gradients D updates late is stable for a rate below 2 sin(pi / (4D + 2)):
/// Lemma 1 of PipeMare, arXiv:1910.05124.
TEST(AsynchronousPipeline, IsStableUpToTheRateOfItsDelay) {
  for (const int stages : {1, 2, 4}) {
    const int delay = stages - 1;
    const double limit = 2 * std::sin(std::numbers::pi / (4 * delay + 2));
    for (const std::string weights : {"stash", "newest"}) {
      EXPECT_LT(growth(stages, weights, 0.99 * limit), 0.99) << weights << ' ' << stages;
      EXPECT_GT(growth(stages, weights, 1.01 * limit), 1.01) << weights << ' ' << stages;
    }
  }
}

/// An optimizer of one float64 parameter after many steps with the same gradient.
class ConstantGradient {
 public:
  explicit ConstantGradient(const OptimizerFactory& make)
      : weight_(torch::tensor({1.5, -2.0}, torch::kFloat64).requires_grad_()),
        optimizer_(make({{"weight", weight_}})) {
    for (int i = 0; i < 2000; ++i) step();
  }
  void step() {
    weight_.mutable_grad() = torch::tensor({0.3, -0.7}, torch::kFloat64);
    before_ = weight_.detach().clone();
    optimizer_->step();
  }
  Velocity velocity() { return *velocity_of(*optimizer_, optimizer_->param_groups()[0], weight_); }
  torch::Tensor weight() const { return weight_.detach().clone(); }
  torch::Tensor before() const { return before_; }

 private:
  torch::Tensor weight_, before_;
  std::unique_ptr<torch::optim::Optimizer> optimizer_;
};

std::unique_ptr<torch::optim::Optimizer> plain_momentum(TensorList parameters) {
  return std::make_unique<torch::optim::SGD>(std::move(parameters),
                                             torch::optim::SGDOptions(1e-3).momentum(0.9));
}

double distance(const torch::Tensor& a, const torch::Tensor& b) {
  return (a - b).abs().max().item<double>();
}

TEST(WeightPrediction, MeetsTheLaterWeightsIfGradientsStayTheSame) {
  for (const int updates : {1, 2, 5, 9}) {
    ConstantGradient problem(plain_momentum);
    const torch::Tensor now = problem.weight();
    torch::Tensor from_momentum = now.clone(), from_update = now.clone();
    predict_weights(from_momentum, now, problem.velocity(), updates);
    extend_update(from_update, now, problem.before(), updates);
    for (int i = 0; i < updates; ++i) problem.step();
    EXPECT_LT(distance(from_momentum, problem.weight()), 1e-12) << updates;
    EXPECT_LT(distance(from_update, problem.weight()), 1e-12) << updates;
  }
}

TEST(WeightPrediction, MeetsTheLaterWeightsOfAdam) {
  const auto adam = [](TensorList parameters) -> std::unique_ptr<torch::optim::Optimizer> {
    return std::make_unique<torch::optim::Adam>(std::move(parameters),
                                                torch::optim::AdamOptions(1e-3));
  };
  ConstantGradient problem(adam);
  torch::Tensor predicted = problem.weight();
  predict_weights(predicted, problem.weight(), problem.velocity(), 7);
  for (int i = 0; i < 7; ++i) problem.step();
  EXPECT_LT(distance(predicted, problem.weight()), 1e-12);
}

TEST(WeightPrediction, HasNoVelocityBeforeTheFirstUpdate) {
  const torch::Tensor weight = torch::ones({2}).requires_grad_();
  const auto optimizer = plain_momentum({weight});
  EXPECT_FALSE(velocity_of(*optimizer, optimizer->param_groups()[0], weight));
}

/// The weights after one gradient of 1 and many of 0, at a rate of 1.
double sum_of_one_gradient(int delay) {
  const torch::Tensor weight = torch::zeros({1}, torch::kFloat64).requires_grad_();
  const auto optimizer = std::make_unique<torch::optim::SGD>(
      TensorList{weight}, torch::optim::SGDOptions(1).momentum(0.8));
  const auto weights =
      make_single_version(WeightMethod::spike_compensation, {0, delay}, {weight}, *optimizer);
  for (int i = 0; i < 400; ++i) {
    weight.mutable_grad() = torch::full({1}, i == 0 ? 1 : 0, torch::kFloat64);
    weights->begin_update();
    optimizer->step();
    weights->end_update();
  }
  EXPECT_EQ(optimizer->param_groups()[0].options().get_lr(), 1);
  return -weight.item<double>();
}

TEST(SpikeCompensation, GivesEachGradientTheSameSum) {
  for (const int delay : {0, 1, 3, 10}) EXPECT_NEAR(sum_of_one_gradient(delay), 5, 1e-12) << delay;
  EXPECT_DOUBLE_EQ(spike_factors(0.8, 3).velocity, 0.512);
  EXPECT_DOUBLE_EQ(spike_factors(0.8, 3).gradient, 1 + 0.8 + 0.64);  // The updates missed.
}

TEST(SpikeCompensation, IsPlainMomentumWithoutDelay) {
  const auto run = [](bool compensated) {
    const torch::Tensor weight = torch::tensor({1.5F, -2.0F, 0.3F}).requires_grad_();
    const auto optimizer = momentum_sgd({weight});
    const auto weights =
        make_single_version(WeightMethod::spike_compensation, {0, 0}, {weight}, *optimizer);
    for (int i = 0; i < 50; ++i) {
      weight.mutable_grad() = torch::sin(weight.detach() * 3 + i);
      if (compensated) weights->begin_update();
      optimizer->step();
      if (compensated) weights->end_update();
    }
    return weight.detach().clone();
  };
  EXPECT_TRUE(torch::equal(run(true), run(false)));
}

TEST(AsynchronousPipeline, GoesOnFromACheckpointAsWithoutTheInterruption) {
  // A checkpoint drains the pipeline, so both runs save one.
  for (const std::string weights : {"stash", "2bw", "spectrain", "lwp_w", "spike_compensation"}) {
    const TemporaryFolder folder;
    const AsyncCase what{.weights = weights, .stages = 3};
    const auto run = [&](int from, int to, bool save) {
      std::mutex mutex;
      NamedValues values;
      on_async_ranks(3, [&](const ProcessGroup& group) {
        Pipeline model(mixed_layers(), async_options(group, what));
        if (from > 0) load_checkpoint(folder.path(), {.group = group, .model = model});
        for (int step = from; step < to; ++step) {
          const auto batch = what.batch(0, step);
          model.train_step(batch.inputs, batch.targets);
          if (save && step == 4) {
            save_checkpoint({.group = group, .model = model}, 5, {.folder = folder.path()});
          }
        }
        const NamedValues own = state_values(model);
        const std::lock_guard lock(mutex);
        values.insert(own.begin(), own.end());
      });
      return values;
    };
    const NamedValues through = run(0, 10, true);
    const NamedValues resumed = run(5, 10, false);
    ASSERT_EQ(through.size(), resumed.size());
    for (const auto& [name, value] : through) {
      EXPECT_TRUE(torch::equal(resumed.at(name), value)) << weights << ": " << name;
    }
  }
}

/// Draws weights from a generator of the layer's own; threads share torch's.
template <class Holder>
Holder with_drawn_values(Holder layer, std::uint64_t seed) {
  const torch::NoGradGuard no_grad;
  const at::Generator generator = at::detail::createCPUGenerator(seed);
  for (const auto& [name, tensor] : all_parameters(*layer)) {
    const double inputs = static_cast<double>(tensor.numel() / tensor.size(0));
    tensor.normal_(0, tensor.dim() > 1 ? std::sqrt(2 / inputs) : 0, generator);
  }
  return layer;
}

/// A convolutional network for images of 28 x 28, with 6,218 parameters.
Layers small_convnet(std::uint64_t seed) {
  using torch::nn::Conv2dOptions;
  Layers layers;
  const auto relu = [] {
    return torch::nn::Functional([](const torch::Tensor& x) { return torch::relu(x); });
  };
  layers.add("conv1", [seed] {
    return with_drawn_values(torch::nn::Conv2d(Conv2dOptions(1, 8, 3).stride(2)), 4 * seed);
  });
  layers.add("relu1", relu);
  layers.add("conv2", [seed] {
    return with_drawn_values(torch::nn::Conv2d(Conv2dOptions(8, 16, 3).stride(2)), 4 * seed + 1);
  });
  layers.add("relu2", relu);
  layers.add("pool", [] { return torch::nn::AdaptiveAvgPool2d(3); });
  layers.add("flatten", [] { return torch::nn::Flatten(); });
  layers.add("hidden",
             [seed] { return with_drawn_values(torch::nn::Linear(144, 32), 4 * seed + 2); });
  layers.add("relu3", relu);
  layers.add("output",
             [seed] { return with_drawn_values(torch::nn::Linear(32, 10), 4 * seed + 3); });
  return layers;
}

/// A run on four stages with an update for every 32 images.
struct Learning {
  std::string schedule = "pipedream";
  std::string weights;
  double rate = 0.02;
  std::uint64_t seed = 0;
  std::int64_t images = 12'800;
  int epochs = 1;
};

/// Returns the accuracy in percent on Fashion-MNIST's test images.
double accuracy_of(const Learning& how) {
  constexpr std::int64_t kUpdate = 32;
  const auto pixels = [](const torch::Tensor& images) {
    return images.to(torch::kFloat32).div(255).sub(0.2860).div(0.3530);
  };
  const ImageData train = load_fashion_mnist(Split::train);
  const ImageData test = load_fashion_mnist(Split::test);
  const torch::Tensor inputs = pixels(train.images.narrow(0, 0, how.images));
  const torch::Tensor test_inputs = pixels(test.images);
  const std::int64_t step = how.schedule == "pipedream" ? 4 * kUpdate : kUpdate;
  double accuracy = 0;
  on_async_ranks(4, [&](const ProcessGroup& group) {
    const auto sgd = [&](TensorList parameters) {
      return std::make_unique<torch::optim::SGD>(std::move(parameters),
                                                 torch::optim::SGDOptions(how.rate).momentum(0.9));
    };
    // Linear decay: the last weights depend little on the last images.
    std::int64_t done = 0;
    const auto decay = [&](torch::optim::Optimizer& optimizer) {
      const double left =
          1 - static_cast<double>(done) / static_cast<double>(how.epochs * how.images);
      for (auto& each : optimizer.param_groups()) each.options().set_lr(how.rate * left);
    };
    Pipeline model(small_convnet(how.seed), {.process_group = group,
                                             .micro_batches = 4,
                                             .schedule = how.schedule,
                                             .weights = how.weights,
                                             .cut = {2, 4, 2, 1},
                                             .optimizer = sgd,
                                             .loss = cross_entropy_sum()});
    for (int epoch = 0; epoch < how.epochs; ++epoch) {
      for (std::int64_t i = 0; i + step <= how.images; i += step) {
        model.train_step(inputs.narrow(0, i, step), train.labels.narrow(0, i, step),
                         {.before = decay});
        done += step;
      }
    }
    const torch::Tensor output = model.evaluate(test_inputs);
    if (!output.defined()) return;
    accuracy = 100 * (output.argmax(1) == test.labels).to(torch::kFloat64).mean().item<double>();
  });
  return accuracy;
}

TEST(AsynchronousPipeline, LearnsAboutAsWellAsASynchronousOne) {
  const double synchronous = accuracy_of({.schedule = "1f1b"});
  EXPECT_GT(synchronous, 65);
  for (const std::string weights : {"stash", "spectrain", "lwp_v"}) {
    EXPECT_GT(accuracy_of({.weights = weights}), synchronous - 4) << weights;
  }
}

std::string async_error(const std::function<void(Pipeline::Options&)>& change) {
  try {
    on_async_ranks(2, [&](const ProcessGroup& group) {
      Pipeline::Options options = async_options(group, {.stages = 2});
      change(options);
      const Pipeline model(mixed_layers(), options);
    });
  } catch (const std::exception& e) {
    return e.what();
  }
  return "";
}

TEST(AsynchronousPipelineErrors, SayWhatGoesTogether) {
  EXPECT_EQ(async_error([](auto& o) { o.weights.clear(); }), "");
  EXPECT_THAT(async_error([](auto& o) { o.weights = "spectrein"; }), HasSubstr("spectrain"));
  EXPECT_THAT(async_error([](auto& o) { o.weights = "2bw"; }),
              HasSubstr("weights 2bw do not go with the schedule pipedream"));
  EXPECT_THAT(async_error([](auto& o) { o.schedule = "1f1b"; }),
              HasSubstr("weights stash do not go with the schedule 1f1b"));
  EXPECT_THAT(async_error([](auto& o) { o.weights = "flush"; }), HasSubstr("flush goes with"));
  EXPECT_THAT(async_error([](auto& o) { o.clip_norm = 1; }), HasSubstr("clip_norm needs"));
  const auto sgd = [](TensorList parameters) {
    return std::make_unique<torch::optim::SGD>(std::move(parameters),
                                               torch::optim::SGDOptions(0.1));
  };
  EXPECT_THAT(async_error([&](auto& o) {
                o.weights = "lwp_v";
                o.optimizer = sgd;
              }),
              HasSubstr("the momentum of SGD, Adam or AdamW"));
  EXPECT_THAT(async_error([&](auto& o) {
                o.weights = "spike_compensation";
                o.optimizer = small_adam;
              }),
              HasSubstr("need SGD with momentum"));
}

}  // namespace
}  // namespace gradwire::test
