#pragma once

#include <algorithm>
#include <cmath>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include <fmt/format.h>
#include <gtest/gtest.h>
#include <torch/torch.h>

#include "gradwire/host/named_tensor.h"
#include "gradwire/train/checkpoint/optimizer_state.h"
#include "gradwire/train/parallel_mesh.h"
#include "gradwire/train/pipeline/pipeline.h"
#include "gradwire/train/pipeline/pipeline_stages.h"
#include "tests/support/torch/loopback.h"
#include "tests/train/pipeline_model.h"

/// Asynchronous pipelines, and one process that trains as they must.
namespace gradwire::test {

using TensorList = std::vector<torch::Tensor>;

/// A convolution reads its weight in the backward from the parameter, a linear layer from what it
/// saved.
struct MixedBlockImpl : torch::nn::Module {
  MixedBlockImpl() {
    conv = register_module("conv", torch::nn::Conv1d(torch::nn::Conv1dOptions(1, 2, 3).padding(1)));
    linear = register_module("linear", torch::nn::Linear(16, 8));
  }
  torch::Tensor forward(const torch::Tensor& x) {
    return x + linear->forward(torch::gelu(conv->forward(x.unsqueeze(1))).flatten(1));
  }
  torch::nn::Conv1d conv{nullptr};
  torch::nn::Linear linear{nullptr};
};
TORCH_MODULE(MixedBlock);

/// Gives the parameters values that do not depend on random numbers, which threads share.
template <class Holder>
Holder with_fixed_values(Holder layer, double phase) {
  const torch::NoGradGuard no_grad;
  for (const auto& [name, tensor] : all_parameters(*layer)) {
    const double scale = tensor.dim() > 1 ? 0.5 : 0.1;
    tensor.copy_(scale *
                 torch::sin(torch::arange(tensor.numel()) * 1.7 + phase).view(tensor.sizes()));
    phase += 1;
  }
  return layer;
}

/// `shift`: of the initial values.
inline Layers mixed_layers(double shift = 0) {
  Layers layers;
  layers.add("input", [=] { return with_fixed_values(torch::nn::Linear(5, 8), shift); });
  for (int i = 0; i < 4; ++i) {
    layers.add(fmt::format("block{}", i),
               [=] { return with_fixed_values(MixedBlock(), 10 + i + shift); });
  }
  layers.add("output", [=] { return with_fixed_values(torch::nn::Linear(8, 3), 20 + shift); });
  return layers;
}

inline std::vector<std::size_t> cut_in(int stages) {
  const std::vector<std::vector<std::size_t>> cuts{{6}, {4, 2}, {1, 3, 2}, {1, 2, 1, 2}};
  return cuts[static_cast<std::size_t>(stages - 1)];
}

inline std::unique_ptr<torch::optim::Optimizer> momentum_sgd(TensorList parameters) {
  return std::make_unique<torch::optim::SGD>(
      std::move(parameters), torch::optim::SGDOptions(0.02).momentum(0.9).weight_decay(0.01));
}
inline std::unique_ptr<torch::optim::Optimizer> small_adam(TensorList parameters) {
  return std::make_unique<torch::optim::Adam>(std::move(parameters),
                                              torch::optim::AdamOptions(0.003));
}

struct AsyncCase {
  std::string weights = "stash";
  int stages = 4;
  OptimizerFactory optimizer = momentum_sgd;
  int micro_batches = 3;
  int steps = 17;
  int drained_at = 8;  ///< A step before which the pipeline is emptied.
  int replicas = 1;
  bool alike = false;  ///< All replicas train on the batches of the first.
  int short_at = -1;   ///< A step for which all replicas but the first have only two samples.

  bool by_step() const { return weights == "2bw"; }
  std::int64_t samples(int replica, int step) const {
    return replica == 0 || alike ? 7 : step == short_at ? 2 : 5;
  }
  PipelineBatch batch(int replica, int step) const {
    return pipeline_batch(samples(replica, step), step + (alike ? 0 : 100 * replica));
  }
};

/// The results of a training run.
struct AsyncOutcome {
  std::vector<NamedValues> parameters;      ///< By replica.
  std::vector<std::vector<double>> losses;  ///< Sums, by replica and step.
  std::vector<int> max_copies;              ///< Copies of the weights, by stage.
};

/// One process that keeps all versions of each stage's weights, and computes each micro-batch with
/// those that the method's definition names, from forward to update before the next one. Averages
/// the gradients of the replicas' micro-batches.
class AllVersions {
 public:
  explicit AllVersions(const AsyncCase& what)
      : what_(what), replicas_(static_cast<std::size_t>(what.replicas)) {
    const Layers layers = mixed_layers();
    std::size_t layer = 0;
    for (const std::size_t count : cut_in(what.stages)) {
      Stage& stage = stages_.emplace_back();
      stage.module = std::make_shared<StageModule>();
      for (std::size_t i = 0; i < count; ++i, ++layer) {
        stage.module->add(layers.name(layer), layers.make(layer));
      }
      for (const auto& [name, tensor] : trainable_parameters(*stage.module)) {
        stage.parameters.push_back(tensor);
      }
      stage.optimizer = what.optimizer(trainable_parameters(*stage.module));
      stage.keep_version();
    }
  }

  AsyncOutcome run() {
    for (int step = 0; step < what_.steps; ++step) {
      if (step == what_.drained_at) drain();
      train(step);
    }
    return outcome();
  }

  void train(int step) {
    for (std::size_t r = 0; r < replicas_.size(); ++r)
      begin(replicas_[r], static_cast<int>(r), step);
    const std::size_t updates = what_.by_step() ? 1 : replicas_.front().inputs.size();
    for (std::size_t u = 0; u < updates; ++u) {
      std::vector<TensorList> gradients;
      for (Replica& replica : replicas_) gradients.push_back(gradients_of(replica, u));
      set_gradients(gradients);
      update();
    }
    for (Replica& replica : replicas_) replica.losses.push_back(replica.loss);
  }

  void drain() {
    for (Replica& replica : replicas_) replica.base = update_;
  }
  /// Goes on with another number of replicas.
  void drain_into(int replicas) {
    replicas_.resize(static_cast<std::size_t>(replicas));
    drain();
  }

  AsyncOutcome outcome() const {
    NamedValues parameters;
    for (const Stage& stage : stages_) {
      for (const auto& [name, tensor] : trainable_parameters(*stage.module)) {
        parameters[name] = tensor.detach().flatten().clone();
      }
    }
    AsyncOutcome outcome;
    for (const Replica& replica : replicas_) {
      outcome.parameters.push_back(parameters);
      outcome.losses.push_back(replica.losses);
    }
    return outcome;
  }

 private:
  struct Stage {
    std::shared_ptr<StageModule> module;
    TensorList parameters;
    std::unique_ptr<torch::optim::Optimizer> optimizer;
    std::vector<TensorList> versions;
    std::vector<TensorList>
        steps;  ///< By version: the last update's step, for a learning rate of 1.
    double rate = 0;
    TensorList velocity;  ///< Spike compensation's own momentum.

    void keep_version() {
      TensorList version, step;
      for (const torch::Tensor& parameter : parameters) {
        version.push_back(parameter.detach().clone());
        step.push_back(step_of(parameter));
      }
      rate = optimizer->param_groups()[0].options().get_lr();
      versions.push_back(version);
      steps.push_back(step);
    }

    torch::Tensor step_of(const torch::Tensor& parameter) {
      std::map<std::string, torch::Tensor> states;
      for (const auto& [name, tensor] : states_of(*optimizer, parameter)) states[name] = tensor;
      if (states.contains("momentum_buffer")) return states["momentum_buffer"].clone();
      if (!states.contains("exp_avg")) return {};
      const auto t = static_cast<double>(states["step"].item<std::int64_t>());
      return (states["exp_avg"] / (1 - std::pow(0.9, t))) /
             ((states["exp_avg_sq"] / (1 - std::pow(0.999, t))).sqrt() + 1e-8);
    }

    void use(const TensorList& values) {
      for (std::size_t i = 0; i < parameters.size(); ++i) {
        parameters[i].variable_data().copy_(values[i]);
      }
    }

    TensorList predicted(std::size_t version, int updates) const {
      TensorList all = versions[version];
      for (std::size_t i = 0; i < all.size() && steps[version][i].defined() && updates > 0; ++i) {
        all[i] = torch::add(all[i], steps[version][i], -rate * updates);
      }
      return all;
    }

    TensorList extended(std::size_t version, int updates) const {
      TensorList all = versions[version];
      for (std::size_t i = 0; i < all.size(); ++i) {
        all[i] = (versions[version][i] - versions[version - 1][i]) * updates + versions[version][i];
      }
      return all;
    }
  };

  struct Replica {
    int base = 0;  ///< Updates when its pipeline was empty last.
    TensorList inputs, targets;
    double loss = 0;
    std::vector<double> losses;
  };

  /// With 2bw, another number of micro-batches drains the pipeline.
  void begin(Replica& replica, int index, int step) {
    const auto batch = what_.batch(index, step);
    const auto parts = std::min<std::int64_t>(what_.micro_batches, what_.samples(index, step));
    const auto before = static_cast<std::int64_t>(replica.inputs.size());
    if (what_.by_step() && before > 0 && before != parts) replica.base = update_;
    replica.inputs = batch.inputs.tensor_split(parts);
    replica.targets = batch.targets.tensor_split(parts);
    replica.loss = 0;
  }

  /// The divisor of the mean loss over the replicas.
  double count(std::size_t update) const {
    std::int64_t samples = 0;
    for (const Replica& replica : replicas_) {
      for (std::size_t i = 0; i < replica.inputs.size(); ++i) {
        if (what_.by_step() || i == update) samples += replica.inputs[i].size(0);
      }
    }
    return static_cast<double>(samples) / static_cast<double>(replicas_.size());
  }

  /// The gradients of the replica's micro-batches for the update, by stage and parameter.
  TensorList gradients_of(Replica& replica, std::size_t update) {
    for (std::size_t i = 0; i < replica.inputs.size(); ++i) {
      if (!what_.by_step() && i != update) continue;
      replica.loss += micro_batch(replica, replica.inputs[i], replica.targets[i], count(update));
    }
    TensorList gradients;
    for (Stage& stage : stages_) {
      for (torch::Tensor& parameter : stage.parameters) {
        gradients.push_back(parameter.grad());
        parameter.mutable_grad() = torch::Tensor();
      }
    }
    return gradients;
  }

  void set_gradients(const std::vector<TensorList>& by_replica) {
    std::size_t i = 0;
    for (Stage& stage : stages_) {
      for (torch::Tensor& parameter : stage.parameters) {
        torch::Tensor sum = by_replica.front()[i];
        for (std::size_t r = 1; r < by_replica.size(); ++r) sum = sum + by_replica[r][i];
        parameter.mutable_grad() = sum / static_cast<double>(by_replica.size());
        ++i;
      }
    }
  }

  TensorList forward_weights(const Replica& replica, int s) const {
    const Stage& stage = stages_[static_cast<std::size_t>(s)];
    const int delay = what_.by_step() ? 1 : what_.stages - 1 - s;
    const int version = std::max(update_ - delay, replica.base);
    const int ahead = update_ - version;
    const auto place = static_cast<std::size_t>(version);
    if (what_.weights == "spectrain") return stage.predicted(place, ahead + s / 2);
    if (what_.weights == "lwp_v") return stage.predicted(place, ahead);
    if (what_.weights == "lwp_w" && version > replica.base && ahead > 0) {
      return stage.extended(place, ahead);
    }
    return stage.versions[place];
  }

  TensorList backward_weights(const Replica& replica, int s) const {
    const Stage& stage = stages_[static_cast<std::size_t>(s)];
    if (what_.weights == "stash" || what_.by_step()) return forward_weights(replica, s);
    const auto place = static_cast<std::size_t>(update_);
    return what_.weights == "spectrain" ? stage.predicted(place, s / 2) : stage.versions[place];
  }

  double micro_batch(const Replica& replica, const torch::Tensor& input,
                     const torch::Tensor& target, double count) {
    TensorList inputs, outputs;
    torch::Tensor x = input;
    for (int s = 0; s < what_.stages; ++s) {
      inputs.push_back(s == 0 ? x : x.detach().requires_grad_());
      Stage& stage = stages_[static_cast<std::size_t>(s)];
      stage.use(forward_weights(replica, s));
      x = stage.module->forward({{kPassing, inputs.back()}}, [](std::size_t) {}).at(kPassing);
      outputs.push_back(x);
    }
    const torch::Tensor sum = cross_entropy_sum().sum(x, target);
    torch::Tensor gradient;
    for (int s = what_.stages; s-- > 0;) {
      const auto place = static_cast<std::size_t>(s);
      stages_[place].use(backward_weights(replica, s));
      if (s + 1 == what_.stages) {
        (sum / count).backward();
      } else {
        outputs[place].backward(gradient);
      }
      gradient = inputs[place].grad();
    }
    return sum.item<double>();
  }

  void update() {
    for (int s = 0; s < what_.stages; ++s) {
      Stage& stage = stages_[static_cast<std::size_t>(s)];
      stage.use(stage.versions.back());
      if (what_.weights == "spike_compensation") {
        compensated_step(stage, what_.stages - 1 - s);
      } else {
        stage.optimizer->step();
      }
      stage.optimizer->zero_grad();
      stage.keep_version();
    }
    ++update_;
  }

  /// The formula of the paper, with momentum_sgd's momentum of 0.9 and decay of 0.01.
  static void compensated_step(Stage& stage, int delay) {
    const torch::NoGradGuard no_grad;
    const double a = std::pow(0.9, delay);
    const double b = (1 - a) / (1 - 0.9);
    for (std::size_t i = 0; i < stage.parameters.size(); ++i) {
      const torch::Tensor& w = stage.parameters[i];
      const torch::Tensor g = w.grad().add(w, 0.01);
      if (stage.velocity.size() <= i) {
        stage.velocity.push_back(g.clone());
      } else {
        stage.velocity[i].mul_(0.9).add_(g);
      }
      w.add_(stage.velocity[i], -(0.02 * a));
      if (delay > 0) w.add_(g, -(0.02 * b));
    }
  }

  AsyncCase what_;
  std::vector<Replica> replicas_;
  std::vector<Stage> stages_;
  int update_ = 0;  ///< Updates so far.
};

inline Pipeline::Options async_options(const ProcessGroup& group, const AsyncCase& what) {
  Pipeline::Options options =
      pipeline_options(group, what.by_step() ? "2bw" : "pipedream", what.micro_batches);
  options.weights = what.weights;
  options.optimizer = what.optimizer;
  options.cut = cut_in(what.stages);
  return options;
}

inline void on_async_ranks(int ranks, const std::function<void(const ProcessGroup&)>& body) {
  run_on_loopback(ranks, [&](const ProcessGroup& group) {
    at::set_num_threads(1);
    body(group);
  });
}

/// On the ranks of all replicas, whose layers begin with other values than those of the first.
inline void on_async_meshes(const AsyncCase& what,
                            const std::function<void(Pipeline&, const ParallelMesh&)>& body,
                            const std::function<void(Pipeline::Options&)>& change = {}) {
  on_async_ranks(what.stages * what.replicas, [&](const ProcessGroup& world) {
    const ParallelMesh mesh(world, {.data = what.replicas, .pipeline = what.stages});
    Pipeline::Options options = async_options(mesh.pipeline(), what);
    options.data = {.process_group = mesh.data()};
    if (change) change(options);
    Pipeline model(mixed_layers(0.1 * mesh.position().data), options);
    body(model, mesh);
  });
}

inline double async_step(Pipeline& model, const AsyncCase& what, int replica, int step) {
  const auto batch = what.batch(replica, step);
  const LossSum loss = model.train_step(batch.inputs, batch.targets);
  EXPECT_EQ(loss.count, model.has_last_stage() ? batch.targets.size(0) : 0);
  return loss.sum;
}

inline AsyncOutcome run_async(const AsyncCase& what,
                              const std::function<void(Pipeline::Options&)>& change = {}) {
  std::mutex mutex;
  AsyncOutcome outcome;
  outcome.max_copies.resize(static_cast<std::size_t>(what.stages));
  outcome.parameters.resize(static_cast<std::size_t>(what.replicas));
  outcome.losses.resize(static_cast<std::size_t>(what.replicas));
  const auto body = [&](Pipeline& model, const ParallelMesh& mesh) {
    const int replica = mesh.position().data;
    std::vector<double> losses;
    for (int step = 0; step < what.steps; ++step) {
      if (step == what.drained_at) model.evaluate(what.batch(replica, step).inputs);
      losses.push_back(async_step(model, what, replica, step));
    }
    model.finish();
    const std::lock_guard lock(mutex);
    const auto place = static_cast<std::size_t>(replica);
    for (const LocalStage& stage : model.stages()) {
      outcome.max_copies[static_cast<std::size_t>(stage.stage)] =
          stage.update->weights()->max_copies();
      for (const auto& [name, tensor] : trainable_parameters(*stage.module)) {
        outcome.parameters[place][name] = tensor.detach().flatten().clone();
      }
    }
    if (model.has_last_stage()) outcome.losses[place] = losses;
  };
  on_async_meshes(what, body, change);
  return outcome;
}

inline void expect_same_outcome(const AsyncOutcome& actual, const AsyncOutcome& expected,
                                const std::string& text) {
  EXPECT_EQ(actual.losses, expected.losses) << text;
  ASSERT_EQ(actual.parameters.size(), expected.parameters.size()) << text;
  for (std::size_t r = 0; r < actual.parameters.size(); ++r) {
    expect_same(actual.parameters[r], expected.parameters[r], fmt::format("{}, {}", text, r));
  }
}

inline void expect_as_with_all_versions(const AsyncCase& what) {
  at::set_num_threads(1);
  expect_same_outcome(
      run_async(what), AllVersions(what).run(),
      fmt::format("{} on {} stages in {} replicas", what.weights, what.stages, what.replicas));
}

}  // namespace gradwire::test
