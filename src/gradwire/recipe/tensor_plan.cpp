#include "gradwire/recipe/tensor_plan.h"

#include <algorithm>

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <fnmatch.h>

#include "gradwire/base/refuse.h"
#include "gradwire/recipe/train_config.h"

namespace gradwire::recipe {

std::vector<std::string> divisible_layers(const ModelConfig& model) {
  if (model.name == "mlp") return {"hidden"};
  if (model.name == "convnet") return {"convolutions", "hidden"};
  std::vector<std::string> names;
  if (model.name == "resnet") {
    for (std::int64_t i = 0; i < blocks_of(model); ++i) names.push_back(fmt::format("block{}", i));
    return names;
  }
  names.emplace_back("embedding");
  for (std::int64_t i = 0; i < blocks_of(model); ++i) {
    names.push_back(fmt::format("block{}.attention", i));
    names.push_back(fmt::format("block{}.mlp", i));
  }
  names.emplace_back("head");
  return names;
}

TensorPlan tensor_plan(const ModelConfig& model, const std::map<std::string, bool>& divides) {
  const std::vector<std::string> names = divisible_layers(model);
  TensorPlan plan;
  std::map<std::string, std::string> matched;  // Pattern by name.
  for (const auto& [pattern, is_divided] : divides) {
    bool matches = false;
    for (const std::string& name : names) {
      if (fnmatch(pattern.c_str(), name.c_str(), 0) != 0) continue;
      matches = true;
      const auto [other, is_new] = matched.emplace(name, pattern);
      if (!is_new) {
        refuse("tensor.plan: \"{}\" and \"{}\" both match {}; leave one out", other->second,
               pattern, name);
      }
      if (!is_divided) plan.replicated.insert(name);
    }
    if (!matches) {
      refuse("tensor.plan: \"{}\" matches no layer that can be divided; the model {} has {}",
             pattern, model.name, fmt::join(names, ", "));
    }
  }
  if (plan.replicated.size() < names.size()) return plan;
  refuse("tensor.plan replicates all layers that can be divided: {}; set mesh.tensor to 1",
         fmt::join(names, ", "));
}

void check_divisible(const ModelConfig& model, const TensorPlan& plan, int ranks) {
  const auto check = [ranks](const char* key, std::int64_t count) {
    if (count % ranks == 0) return;
    refuse("{} {} is not divisible by mesh.tensor {}; choose one that is", key, count, ranks);
  };
  const auto names = divisible_layers(model);
  const auto divides = [&](std::string_view part) {
    return std::ranges::any_of(names, [&](const std::string& name) {
      return name.find(part) != std::string::npos && plan.divides(name);
    });
  };
  if (divides(".attention")) check("model.heads", model.heads);
  if (divides("convolutions")) check("model.channels", model.channels);
  if (model.name == "resnet" && divides("block")) check("model.groups", model.groups);
}

}  // namespace gradwire::recipe
