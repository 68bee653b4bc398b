#pragma once

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
#include "gradwire/torch/process_group.h"
#include "gradwire/train/pipeline/pipeline.h"
#include "tests/support/torch/loopback.h"

namespace gradwire::test {

/// A small model of eight layers; with dropout if asked. The same initial values on every call.
inline Layers pipeline_layers(double dropout = 0) {
  Layers layers;
  layers.add("input", [] { return torch::nn::Linear(5, 8); });
  for (int i = 0; i < 3; ++i) {
    layers.add(fmt::format("block{}", i), [] {
      return torch::nn::Sequential(torch::nn::Linear(8, 12), torch::nn::GELU(),
                                   torch::nn::Linear(12, 8));
    });
    layers.add(fmt::format("norm{}", i), [dropout] {
      return torch::nn::Sequential(torch::nn::LayerNorm(torch::nn::LayerNormOptions({8})),
                                   torch::nn::Dropout(torch::nn::DropoutOptions(dropout)));
    });
  }
  layers.add("output", [] { return torch::nn::Linear(8, 3); });
  return layers;
}

/// Ties parameters of layers that are in different stages, and of three.
inline Layers with_ties(Layers layers) {
  layers.tie("block0.0.weight", "block2.0.weight");
  layers.tie("norm0.0.weight", "norm1.0.weight", "norm2.0.weight");
  return layers;
}

/// Two layers whose frozen weights are tied: all ones, and all twos before.
inline Layers frozen_ties() {
  Layers layers;
  for (const std::string name : {"a", "b"}) {
    layers.add(name, [name] {
      torch::nn::Linear linear(5, 5);
      linear->weight.set_data(torch::full({5, 5}, name == "a" ? 1.0F : 2.0F));
      linear->weight.set_requires_grad(false);
      return linear;
    });
  }
  layers.tie("a.weight", "b.weight");
  return layers;
}

/// Inputs and classes of a step.
struct PipelineBatch {
  torch::Tensor inputs, targets;
};
inline PipelineBatch pipeline_batch(std::int64_t samples, std::int64_t step) {
  const auto values = torch::arange(samples * 5, torch::kFloat32).view({samples, 5});
  return {torch::sin(values * 0.7 + static_cast<double>(step)),
          (torch::arange(samples) + step).remainder(3)};
}

inline std::unique_ptr<torch::optim::Optimizer> pipeline_adam(
    std::vector<torch::Tensor> parameters) {
  return std::make_unique<torch::optim::Adam>(std::move(parameters),
                                              torch::optim::AdamOptions(0.01));
}

inline Pipeline::Options pipeline_options(const ProcessGroup& group, const std::string& schedule,
                                          int micro_batches) {
  return {.process_group = group,
          .micro_batches = micro_batches,
          .schedule = schedule,
          .optimizer = pipeline_adam,
          .loss = cross_entropy_sum(),
          .seed = 3};
}

/// Bytes of payload that this rank sends in `body`. Every rank of the group must call it.
inline std::size_t payload_of(const ProcessGroup& group, const std::function<void()>& body) {
  const auto communicator = communicator_of(*group);
  const auto sent = [&] {
    communicator->barrier().wait();  // All messages before are sent.
    return communicator->payload_bytes_sent();
  };
  const std::size_t begin = sent();
  const std::size_t barrier = sent() - begin;
  body();
  return sent() - begin - 2 * barrier;
}

using NamedValues = std::map<std::string, torch::Tensor>;

/// Copies of a rank's parameters by name, and of its optimizer states.
inline NamedValues state_values(Pipeline& model) {
  NamedValues values;
  for (const TensorPiece& piece : model.pieces(false)) values[piece.name] = piece.data.clone();
  return values;
}

/// Every stage's parameters and optimizer states after some steps, from all ranks.
class TrainedParts {
 public:
  void take(const NamedValues& values) {
    const std::lock_guard lock(mutex_);
    for (const auto& [name, value] : values) values_[name] = value;
  }
  const NamedValues& values() const { return values_; }

 private:
  std::mutex mutex_;
  NamedValues values_;
};

/// Runs `body` on every rank, with one torch thread: layer norm adds gradients thread by thread.
inline void on_ranks(int ranks, const std::function<void(const ProcessGroup&)>& body) {
  run_on_loopback(ranks, [&](const ProcessGroup& group) {
    at::set_num_threads(1);
    body(group);
  });
}

/// The parameters of all layers, with one seed.
inline std::vector<torch::Tensor> drawn_parameters(const Layers& layers) {
  torch::manual_seed(11);
  std::vector<torch::Tensor> all;
  for (std::size_t i = 0; i < layers.size(); ++i) {
    for (const auto& [name, tensor] : all_parameters(*layers.make(i).ptr())) {
      all.push_back(tensor.detach().clone());
    }
  }
  return all;
}

/// Layers whose factories copy `drawn`: the same values on every thread, which share a generator.
inline Layers with_values(const Layers& plain, const std::vector<torch::Tensor>& drawn) {
  Layers shared;
  std::size_t first = 0;
  for (std::size_t i = 0; i < plain.size(); ++i) {
    const std::size_t begin = first;
    const auto make = [plain, drawn, i, begin] {
      torch::nn::AnyModule layer = plain.make(i);
      const torch::NoGradGuard no_grad;
      std::size_t next = begin;
      for (const auto& [name, tensor] : all_parameters(*layer.ptr())) tensor.copy_(drawn[next++]);
      return layer;
    };
    first += all_parameters(*plain.make(i).ptr()).size();
    shared.add_layer(plain.name(i), make);
  }
  for (const auto& names : plain.ties()) shared.tie_all(names);
  return shared;
}

/// pipeline_layers() with the same values on every thread.
inline Layers shared_layers() {
  static const std::vector<torch::Tensor> drawn = drawn_parameters(pipeline_layers());
  return with_values(pipeline_layers(), drawn);
}

inline void expect_same(const NamedValues& actual, const NamedValues& expected,
                        const std::string& what) {
  ASSERT_EQ(actual.size(), expected.size()) << what;
  for (const auto& [name, value] : expected) {
    ASSERT_TRUE(actual.contains(name)) << what << ": " << name;
    EXPECT_TRUE(torch::equal(actual.at(name), value)) << what << ": " << name;
  }
}

/// Holders of with_ties() have the same values and Adam's states, and others do not.
inline void expect_ties_hold(const NamedValues& values) {
  for (const std::string prefix : {"", "optimizer.exp_avg.", "optimizer.exp_avg_sq."}) {
    const auto at = [&](const std::string& name) {
      const auto found = values.find(prefix + name);
      return found == values.end() ? torch::Tensor() : found->second;
    };
    ASSERT_TRUE(at("block0.0.weight").defined()) << prefix;
    EXPECT_TRUE(torch::equal(at("block0.0.weight"), at("block2.0.weight"))) << prefix;
    EXPECT_FALSE(torch::equal(at("block0.0.weight"), at("block1.0.weight"))) << prefix;
    EXPECT_TRUE(torch::equal(at("norm0.0.weight"), at("norm1.0.weight"))) << prefix;
    EXPECT_TRUE(torch::equal(at("norm0.0.weight"), at("norm2.0.weight"))) << prefix;
  }
}

}  // namespace gradwire::test
