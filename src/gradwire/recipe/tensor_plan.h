#pragma once

#include <map>
#include <set>
#include <string>
#include <vector>

namespace gradwire::recipe {

struct ModelConfig;

/// Which layers of a model are divided over the ranks of mesh.tensor: all that can be, except those
/// that the configuration keeps whole on every rank.
struct TensorPlan {
  std::set<std::string> replicated;  ///< Names of divisible_layers().

  bool divides(const std::string& layer) const { return !replicated.contains(layer); }
};

/// Names of the layers that can be divided. For text: "embedding" and "head" by the vocabulary,
/// "blockN.attention" by heads, "blockN.mlp" by its hidden features. For images: "blockN" and
/// "convolutions" by channels, "hidden" by features.
std::vector<std::string> divisible_layers(const ModelConfig& model);

/// Reads "tensor.plan" of a configuration: "divided" or "replicated" for patterns of names, in
/// which '*' stands for any text. Throws Exception(invalid_argument) for a pattern that matches no
/// name, with the names that there are, for a name that two patterns match, and if nothing is
/// divided.
TensorPlan tensor_plan(const ModelConfig& model, const std::map<std::string, bool>& divides);

/// Throws Exception(invalid_argument) that names the key, if what the plan divides (heads,
/// channels, groups) is not divisible by `ranks`.
void check_divisible(const ModelConfig& model, const TensorPlan& plan, int ranks);

}  // namespace gradwire::recipe
