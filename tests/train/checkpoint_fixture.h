#pragma once

#include <algorithm>
#include <filesystem>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include <gtest/gtest.h>
#include <torch/torch.h>

#include "gradwire/train/checkpoint/checkpoint.h"
#include "gradwire/train/checkpoint/replicated.h"
#include "gradwire/train/data_parallel/data_parallel.h"
#include "tests/support/temporary_folder.h"
#include "tests/support/torch/thread_group.h"

namespace gradwire::test {

/// Convolution (not row-major in memory), batch norm (buffers) and a frozen layer, large enough for
/// its tensors to be split.
inline torch::nn::Sequential small_model(std::int64_t width = 40) {
  torch::nn::Conv2d convolution(3, 4, 3);
  convolution->weight.set_data(convolution->weight.contiguous(torch::MemoryFormat::ChannelsLast));
  torch::nn::Linear frozen(4, 4);
  for (auto& parameter : frozen->parameters()) parameter.set_requires_grad(false);
  return torch::nn::Sequential(convolution, torch::nn::BatchNorm2d(4), torch::nn::Flatten(),
                               torch::nn::Linear(4 * 36, width), torch::nn::ReLU(),
                               torch::nn::Linear(width, 4), frozen);
}

using MakeOptimizer =
    std::function<std::unique_ptr<torch::optim::Optimizer>(std::vector<torch::Tensor>)>;

template <class Optimizer, class Options>
MakeOptimizer making(Options options) {
  return [options](std::vector<torch::Tensor> parameters) {
    return std::make_unique<Optimizer>(std::move(parameters), options);
  };
}

inline MakeOptimizer adam() {
  return making<torch::optim::Adam>(torch::optim::AdamOptions(0.01).amsgrad(true));
}

/// A model in training on one rank.
struct Trained {
  Trained(const ProcessGroup& of, const MakeOptimizer& optimizer, torch::nn::Sequential module)
      : group(of),
        model(std::move(module), {.process_group = of, .optimizer = optimizer}),
        state(*model.module(), model.core()) {}

  /// Takes a step that is the same on any number of ranks.
  void step(int number) {
    auto generator = at::make_generator<at::CPUGeneratorImpl>(static_cast<std::uint64_t>(number));
    const auto inputs = torch::randn({8, 3, 8, 8}, generator);
    model(inputs).square().mean().backward();
    model.step();
  }

  RunState run() { return {.group = group, .model = state, .description = R"({"name":"small"})"}; }

  /// Copies of all tensors, by name.
  std::map<std::string, torch::Tensor> all() {
    std::map<std::string, torch::Tensor> copies;
    for (const auto& piece : state.pieces(false)) {
      copies[piece.name] = piece.data.clone().view(piece.shape);
    }
    return copies;
  }

  ProcessGroup group;
  DataParallel<torch::nn::Sequential> model;
  ReplicatedModel state;
};

inline torch::nn::Sequential seeded_model(std::int64_t width) {
  static std::mutex seed;  // Ranks are threads that share the process's generator.
  const std::lock_guard lock(seed);
  torch::manual_seed(5);
  return small_model(width);
}

inline std::unique_ptr<Trained> trained(const ProcessGroup& group, const MakeOptimizer& optimizer,
                                        int steps, std::int64_t width = 40) {
  auto made = std::make_unique<Trained>(group, optimizer, seeded_model(width));
  for (int i = 0; i < steps; ++i) made->step(i);
  return made;
}

inline bool same(const std::map<std::string, torch::Tensor>& a,
                 const std::map<std::string, torch::Tensor>& b) {
  return a.size() == b.size() && std::ranges::all_of(a, [&b](const auto& item) {
           return b.contains(item.first) && item.second.equal(b.at(item.first));
         });
}

struct CheckpointTest : ::testing::Test {
  CheckpointTest() { at::set_num_threads(1); }

  /// Saves a model after three steps; returns all saved tensors.
  std::map<std::string, torch::Tensor> save_on(int ranks, const MakeOptimizer& optimizer = adam()) {
    std::map<std::string, torch::Tensor> saved;
    run_on_threads(ranks, [&](const auto& group) {
      const auto model = trained(group, optimizer, 3);
      save_checkpoint(model->run(), 3, {.folder = place});
      if (group->getRank() == 0) saved = model->all();
    });
    return saved;
  }

  std::vector<std::string> errors_of_loading(int ranks, const MakeOptimizer& optimizer = adam(),
                                             std::int64_t width = 40) {
    return errors_on_threads(ranks, [&](const auto& group) {
      load_checkpoint(place, trained(group, optimizer, 0, width)->run());
    });
  }

  TemporaryFolder folder;
  std::filesystem::path place = folder / "checkpoints";
};

}  // namespace gradwire::test
