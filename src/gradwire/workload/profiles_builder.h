#pragma once

#include <initializer_list>
#include <string>
#include <utility>
#include <vector>

#include "gradwire/workload/profiles.h"

namespace gradwire::workload {

/// Collects a model's layers with their multiplications, and converts these to shares.
class ProfileBuilder {
 public:
  explicit ProfileBuilder(const std::string& name) { counted_.profile.name = name; }

  void add(const std::string& layer, std::vector<ProfileTensor> parameters,
           double multiplications) {
    counted_.profile.layers.push_back({.name = layer,
                                       .parameters = std::move(parameters),
                                       .forward = multiplications,
                                       .backward = 2 * multiplications});
    counted_.multiplications += multiplications;
  }

  CountedProfile finish() {
    normalize_shares(counted_.profile);
    return std::move(counted_);
  }

 private:
  CountedProfile counted_;
};

/// The usual names of a layer's parameters: NAME.weight and NAME.bias.
inline ProfileTensor weight(const std::string& layer, std::vector<std::int64_t> shape) {
  return {layer + ".weight", std::move(shape)};
}
inline ProfileTensor bias(const std::string& layer, std::int64_t size) {
  return {layer + ".bias", {size}};
}

}  // namespace gradwire::workload
