#include "gradwire/train/pipeline/layers.h"

#include <algorithm>
#include <limits>
#include <numeric>

#include <fmt/ranges.h>

#include "gradwire/base/refuse.h"
#include "gradwire/host/named_tensor.h"
#include "gradwire/train/activation/activation_checkpoint.h"
#include "gradwire/train/activation/await_parameters.h"
#include "gradwire/train/parallel/parallel_module.h"

namespace gradwire {
namespace {

/// A Sequential whose forward is no template, as AnyModule needs.
class SequentialLayer : public torch::nn::Module {
 public:
  explicit SequentialLayer(torch::nn::Sequential sequential) : sequential_(std::move(sequential)) {
    for (const auto& child : sequential_->named_children()) {
      register_module(child.key(), child.value());
    }
  }
  torch::Tensor forward(const torch::Tensor& input) { return sequential_->forward(input); }

 private:
  torch::nn::Sequential sequential_;
};

}  // namespace

Layers::Layers(const torch::nn::Sequential& sequential) {
  for (std::size_t i = 0; i < sequential->size(); ++i) {
    const torch::nn::AnyModule layer = *(sequential->begin() + static_cast<std::ptrdiff_t>(i));
    add_layer(std::to_string(i), [layer] { return layer; });
  }
}

torch::nn::AnyModule Layers::as_layer(torch::nn::Sequential made) {
  return torch::nn::AnyModule(std::make_shared<SequentialLayer>(std::move(made)));
}

Layers& Layers::add_layer(const std::string& name, MakeLayer make) {
  if (name.empty() || name.find('.') != std::string::npos) {
    refuse("layer \"{}\": a name must not be empty, nor have a dot", name);
  }
  if (std::ranges::count(layers_, name, &Layer::name) > 0) {
    refuse("layer \"{}\" exists already; each layer needs another name", name);
  }
  layers_.push_back({name, std::move(make)});
  return *this;
}

Layers& Layers::tie_all(std::vector<std::string> names) {
  if (names.size() < 2) refuse("a tie of {}: name two parameters or more", fmt::join(names, ", "));
  for (auto name = names.begin(); name != names.end(); ++name) {
    const auto has = [&](const auto& tie) { return std::ranges::count(tie, *name) > 0; };
    if (std::find(names.begin(), name, *name) == name && std::ranges::none_of(ties_, has)) continue;
    refuse("parameter {} is tied already; name all that share its values in one tie", *name);
  }
  ties_.push_back(std::move(names));
  return *this;
}

Layers& Layers::skip(const std::string& from, const std::string& to) {
  constexpr int kMaxSkips = 3;
  const auto index_of = [this](const std::string& name) {
    const auto found = std::ranges::find(layers_, name, &Layer::name);
    if (found == layers_.end()) {
      refuse("skip(): no layer named '{}'; call add() before skip()", name);
    }
    return static_cast<std::size_t>(found - layers_.begin());
  };
  const Skip skip{index_of(from), index_of(to)};
  if (skip.from + 1 >= skip.to) {
    refuse("a skip connection from layer {} to {}: expected a layer before the one before {}", from,
           to, to);
  }
  if (std::ranges::count(skips_, skip.to, &Skip::to) == kMaxSkips) {
    refuse("layer {} has {} skip connections, the most that are possible: concatenate some", to,
           kMaxSkips);
  }
  skips_.push_back(skip);
  return *this;
}

std::vector<std::size_t> balanced_cut(const std::vector<double>& weights, int stages) {
  const std::size_t n = weights.size();
  const auto parts = static_cast<std::size_t>(stages);
  if (stages < 1 || parts > n) {
    refuse("{} layers cannot be divided into {} stages: use at most as many stages as layers", n,
           stages);
  }
  std::vector<double> sum(n + 1, 0);
  std::partial_sum(weights.begin(), weights.end(), sum.begin() + 1);
  // best[k][i]: the largest stage of the best cut of the first i layers into k stages.
  constexpr double kImpossible = std::numeric_limits<double>::infinity();
  std::vector best(parts + 1, std::vector<double>(n + 1, kImpossible));
  std::vector begin(parts + 1, std::vector<std::size_t>(n + 1, 0));
  best[0][0] = 0;
  for (std::size_t k = 1; k <= parts; ++k) {
    for (std::size_t i = k; i <= n; ++i) {
      for (std::size_t j = k - 1; j < i; ++j) {
        const double largest = std::max(best[k - 1][j], sum[i] - sum[j]);
        if (largest >= best[k][i]) continue;
        best[k][i] = largest;
        begin[k][i] = j;
      }
    }
  }
  std::vector<std::size_t> counts(parts);
  for (std::size_t k = parts, end = n; k > 0; --k) {
    counts[k - 1] = end - begin[k][end];
    end = begin[k][end];
  }
  return counts;
}

std::vector<double> parameter_counts(const Layers& layers) {
  const torch::Tensor random = random_state();
  std::vector<double> counts;
  for (std::size_t i = 0; i < layers.size(); ++i) {
    counts.push_back(whole_elements(*layers.make(i).ptr()));
  }
  set_random_state(random);
  return counts;
}

std::vector<std::string> trained_names(const Layers& layers) {
  const torch::Tensor random = random_state();
  std::vector<std::string> names;
  const auto repeats = [&](const std::string& name) {
    return std::ranges::any_of(layers.ties(), [&](const auto& tie) {
      const bool is_tied = std::ranges::count(tie, name) > 0;
      return is_tied && std::ranges::any_of(tie, [&](const std::string& other) {
               return std::ranges::count(names, other) > 0;
             });
    });
  };
  for (std::size_t i = 0; i < layers.size(); ++i) {
    for (const auto& parameter : trainable_parameters(*layers.make(i).ptr())) {
      const std::string name = layers.name(i) + "." + parameter.name;
      if (!repeats(name)) names.push_back(name);
    }
  }
  set_random_state(random);
  return names;
}

void check_cut(const Layers& layers, const std::vector<std::size_t>& cut, int stages) {
  if (layers.size() < static_cast<std::size_t>(stages)) {
    refuse("{} layers cannot be divided into {} stages: use at most as many stages as layers",
           layers.size(), stages);
  }
  if (cut.empty()) return;
  const bool fits = cut.size() == static_cast<std::size_t>(stages) &&
                    std::ranges::all_of(cut, [&](std::size_t count) {
                      return count > 0 && count <= layers.size();  // So that the sum cannot wrap.
                    });
  if (!fits || std::accumulate(cut.begin(), cut.end(), std::size_t{0}) != layers.size()) {
    refuse("cut {}: expected the number of layers of each of {} stages, {} in all",
           fmt::join(cut, ", "), stages, layers.size());
  }
}

std::vector<std::size_t> complete_cut(const Layers& layers, const std::vector<std::size_t>& cut,
                                      int stages) {
  check_cut(layers, cut, stages);
  if (!cut.empty()) return cut;
  std::vector<double> weights = parameter_counts(layers);
  for (double& weight : weights) ++weight;  // Layers without parameters count a little.
  return balanced_cut(weights, stages);
}

LayerSkips skips_of(const Layers& layers, std::size_t layer) {
  LayerSkips skips;
  StageValue value = 0;
  for (const Layers::Skip& skip : layers.skips()) {
    if (skip.to == layer) skips.takes.push_back(value);
    if (skip.from == layer) skips.gives.push_back(value);
    ++value;
  }
  return skips;
}

void StageModule::add(const std::string& name, torch::nn::AnyModule layer, LayerSkips skips) {
  register_module(name, layer.ptr());
  layers_.push_back({name, std::move(layer), std::move(skips)});
}

namespace {

torch::Tensor call(torch::nn::AnyModule& layer, torch::Tensor x,
                   const std::vector<torch::Tensor>& skipped) {
  switch (skipped.size()) {
    case 0:
      return layer.forward(std::move(x));
    case 1:
      return layer.forward(std::move(x), skipped[0]);
    case 2:
      return layer.forward(std::move(x), skipped[0], skipped[1]);
    default:
      return layer.forward(std::move(x), skipped[0], skipped[1], skipped[2]);
  }
}

}  // namespace

StageValues StageModule::forward(StageValues values,
                                 const std::function<void(std::size_t)>& before_layer) {
  BlockObserver* const observer = block_observer();
  torch::Tensor passing = std::move(values.extract(kPassing).mapped());
  for (std::size_t i = 0; i < layers_.size(); ++i) {
    auto& [name, layer, skips] = layers_[i];
    std::vector<torch::Tensor> skipped;
    for (const StageValue k : skips.takes) skipped.push_back(values.extract(k).mapped());
    before_layer(i);
    if (observer) observer->before_block(*layer.ptr());
    try {
      passing = call(layer, std::move(passing), skipped);
    } catch (const c10::Error& e) {
      refuse("layer {}: {}", name, e.what_without_backtrace());
    }
    if (observer) observer->after_block(*layer.ptr(), {passing});
    for (const StageValue k : skips.gives) values[k] = passing;
  }
  values[kPassing] = std::move(passing);
  return values;
}

}  // namespace gradwire
