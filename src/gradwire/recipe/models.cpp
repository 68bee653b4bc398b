#include "gradwire/recipe/models.h"

#include <mutex>

#include <nlohmann/json.hpp>

#include "gradwire/base/random.h"
#include "gradwire/memory/memory_ledger.h"
#include "gradwire/memory/memory_tracker.h"
#include "gradwire/recipe/model_layers.h"
#include "gradwire/recipe/optimizers.h"
#include "gradwire/torch/init.h"
#include "gradwire/train/parallel/parallel_cross_entropy.h"

namespace gradwire::recipe {
namespace {

bool is_for_text(const ModelConfig& config) {
  return config.name == "transformer" || config.name == "gpt";
}

}  // namespace

Layers make_layers(const ModelConfig& config, const LayerGroups& groups) {
  initialize_vector_math();
  Layers layers;
  if (is_for_text(config)) {
    add_text_model(layers, config, groups);
  } else if (config.name == "dlrm") {
    add_click_model(layers, config);
  } else {
    add_image_model(layers, config, groups);
  }
  return layers;
}

torch::nn::Sequential make_model(const ModelConfig& config) {
  const Layers layers = make_layers(config);
  torch::nn::Sequential model;
  for (std::size_t i = 0; i < layers.size(); ++i) model->push_back(layers.name(i), layers.make(i));
  return model;
}

torch::nn::Sequential seeded_model(const TrainConfig& config, int rank) {
  // libtorch has one generator per process, in which ranks may be threads.
  static std::mutex generator;
  const std::lock_guard lock(generator);
  check_groups(config);
  torch::manual_seed(config.seed);
  const MemoryScope memory(MemoryCategory::parameters);
  auto model = make_model(config.model);
  torch::manual_seed(mixed_seed({config.seed, static_cast<std::uint64_t>(rank)}));
  return model;
}

std::string model_description(const TrainConfig& config) {
  auto model = nlohmann::json::parse(config.model_text);
  model["name"] = config.model.name;
  return model.dump();
}

std::vector<std::size_t> check_groups(const TrainConfig& config) {
  if (config.optimizer.groups.empty()) return {};
  return group_sizes(config.optimizer, trained_names(make_layers(config.model)));
}

PipelineLoss likelihood_sum(const ModelConfig& config, const LayerGroups& groups) {
  const ProcessGroup head = groups.of("head");
  if (is_for_text(config) && head) return cross_entropy_sum_over_ranks(config.vocabulary, head);
  return {[](const torch::Tensor& output, const torch::Tensor& target) {
            return torch::nll_loss_nd(output, target, {}, at::Reduction::Sum);
          },
          [](const torch::Tensor& target) { return static_cast<double>(target.numel()); }};
}

}  // namespace gradwire::recipe
