#pragma once

#include <concepts>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include <torch/torch.h>

namespace gradwire {

/// A model as a list of named layers, each of which takes the tensor that the layer before returns.
/// The layers are factories, so that a rank of a pipeline holds only those of its stages:
///
///     gradwire::Layers layers;
///     layers.add("embedding", [] { return torch::nn::Embedding(256, 64); });
///     layers.add("hidden", [] { return torch::nn::Sequential(Block(64), Block(64)); });
///     layers.add("head", [] { return torch::nn::Linear(64, 256); });
///     layers.tie("embedding.weight", "head.weight");
///
/// Not thread-safe.
class Layers {
 public:
  using MakeLayer = std::function<torch::nn::AnyModule()>;

  Layers() = default;
  /// The children of a Sequential, which exist already on every rank.
  explicit Layers(const torch::nn::Sequential& sequential);

  /// Adds a layer. `make` returns a module holder (torch::nn::Linear, Sequential, Functional, your
  /// own) whose forward takes a tensor and returns one. Pipeline's constructor calls it on every
  /// rank, in the order of the layers, so that random initial values do not depend on the number of
  /// stages. Throws Exception(invalid_argument) if the name is taken, empty, or has a dot.
  template <class Make>
  Layers& add(const std::string& name, Make make) {
    return add_layer(name, [make = std::move(make)] { return as_layer(make()); });
  }
  Layers& add_layer(const std::string& name, MakeLayer make);

  /// Ties parameters, given by their names in the whole model: a Pipeline trains them as one. Each
  /// has a copy of its own, in every cut: they start with the values of the first in the model, and
  /// each takes the steps of their gradients' sum, added in the order of the layers. Throws
  /// Exception(invalid_argument) for less than two names, and for a name that is tied already.
  template <std::convertible_to<std::string>... Names>
  Layers& tie(const Names&... names) {
    return tie_all({std::string(names)...});
  }
  Layers& tie_all(std::vector<std::string> names);

  /// A skip connection: what layer `from` returns is an argument of layer `to` too, after what the
  /// layer before returns and the skip connections declared before. In a pipeline it passes from
  /// the stage of one directly to that of the other. At most three to a layer. Throws
  /// Exception(invalid_argument) if there are no such layers yet, or `from` is not before the layer
  /// before `to`.
  Layers& skip(const std::string& from, const std::string& to);

  std::size_t size() const { return layers_.size(); }
  const std::string& name(std::size_t layer) const { return layers_[layer].name; }
  torch::nn::AnyModule make(std::size_t layer) const { return layers_[layer].make(); }
  /// A skip connection, by the indices of its layers.
  struct Skip {
    std::size_t from = 0;
    std::size_t to = 0;
  };
  const std::vector<Skip>& skips() const { return skips_; }
  /// The names of parameters that are tied to each other.
  const std::vector<std::vector<std::string>>& ties() const { return ties_; }

 private:
  struct Layer {
    std::string name;
    MakeLayer make;
  };

  template <class Holder>
  static torch::nn::AnyModule as_layer(Holder made) {
    return torch::nn::AnyModule(std::move(made));
  }
  static torch::nn::AnyModule as_layer(torch::nn::Sequential made);
  static torch::nn::AnyModule as_layer(torch::nn::AnyModule made) { return made; }

  std::vector<Layer> layers_;
  std::vector<std::vector<std::string>> ties_;
  std::vector<Skip> skips_;
};

/// A tensor between layers: kPassing is what a layer returns to the next one, k that of the k-th
/// skip connection.
using StageValue = int;
inline constexpr StageValue kPassing = -1;
using StageValues = std::map<StageValue, torch::Tensor>;

/// The skip connections of a layer: values that it takes, and returns.
struct LayerSkips {
  std::vector<StageValue> takes;
  std::vector<StageValue> gives;
};
LayerSkips skips_of(const Layers& layers, std::size_t layer);

/// Divides layers into consecutive stages so that the largest sum of weights is least, and every
/// stage has a layer. Returns the number of layers of each stage. Throws
/// Exception(invalid_argument) if there are fewer layers than stages.
std::vector<std::size_t> balanced_cut(const std::vector<double>& weights, int stages);

/// Returns the number of parameters of each layer, of divided layers as if they were not. Makes one
/// layer at a time, and leaves torch's random numbers as they were.
std::vector<double> parameter_counts(const Layers& layers);

/// Returns the names of all trainable parameters; of parameters that are tied, the first in the
/// model. Makes one layer at a time, and leaves torch's random numbers as they were.
std::vector<std::string> trained_names(const Layers& layers);

/// Throws Exception(invalid_argument) if `cut`, unless it is empty, does not have the number of
/// layers of each stage, or if there are fewer layers than stages.
void check_cut(const Layers& layers, const std::vector<std::size_t>& cut, int stages);

/// Returns the number of layers of each stage: `cut`, or stages of about equally many parameters if
/// it is empty. Throws as check_cut().
std::vector<std::size_t> complete_cut(const Layers& layers, const std::vector<std::size_t>& cut,
                                      int stages);

/// Consecutive layers, as a module whose children have the layers' names: parameters have the same
/// names in every cut.
class StageModule : public torch::nn::Module {
 public:
  void add(const std::string& name, torch::nn::AnyModule layer, LayerSkips skips = {});

  /// `values`: what the stage receives. Returns what later stages receive. Calls `before_layer(i)`
  /// before the stage's i-th layer. Each layer is a block for this thread's BlockObserver. Throws
  /// Exception(invalid_argument) that names the layer if it does not take these tensors and return
  /// one.
  StageValues forward(StageValues values, const std::function<void(std::size_t)>& before_layer);

 private:
  struct Layer {
    std::string name;
    torch::nn::AnyModule module;
    LayerSkips skips;
  };
  std::vector<Layer> layers_;
};

}  // namespace gradwire
