#include "gradwire/workload/layer_profile.h"

#include <cmath>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "gradwire/base/file.h"
#include "gradwire/base/refuse.h"

namespace gradwire::workload {
namespace {

using Json = nlohmann::ordered_json;

/// More elements exceed any memory: an error in the file.
constexpr double kMaxElements = 1e12;

/// A position in a profile, and errors at it.
struct Place {
  const std::string& source;
  std::string path;

  [[noreturn]] void refuse_here(std::string_view key, const std::string& expected) const {
    refuse("{}: {}{}: expected {}", source, path, key, expected);
  }
  Place inside(std::string_view key, std::size_t index) const {
    return {source, fmt::format("{}{}[{}].", path, key, index)};
  }
};

const Json& array_of(const Json& object, const char* key, const Place& place) {
  if (!object.is_object() || !object.contains(key) || !object[key].is_array())
    place.refuse_here(key, "a list");
  return object[key];
}

std::string text_of(const Json& object, const char* key, const Place& place) {
  if (!object.is_object() || !object.contains(key) || !object[key].is_string())
    place.refuse_here(key, "a string");
  return object[key].get<std::string>();
}

/// Returns a finite non-negative number, or 0 if the key is absent.
double amount_of(const Json& object, const char* key, const Place& place) {
  if (!object.contains(key)) return 0;
  const bool fits = object[key].is_number() && object[key].get<double>() >= 0 &&
                    std::isfinite(object[key].get<double>());
  if (!fits) place.refuse_here(key, "a non-negative number");
  return object[key].get<double>();
}

ProfileTensor tensor_of(const Json& object, const Place& place) {
  ProfileTensor tensor{.name = text_of(object, "name", place)};
  double count = 1;
  for (const Json& size : array_of(object, "shape", place)) {
    if (!size.is_number_integer() || size.get<std::int64_t>() < 0)
      place.refuse_here("shape", "non-negative integers");
    tensor.shape.push_back(size.get<std::int64_t>());
    count *= static_cast<double>(tensor.shape.back());
  }
  if (count > kMaxElements) place.refuse_here("shape", "at most 10^12 elements");
  return tensor;
}

ProfileLayer layer_of(const Json& object, const Place& place) {
  ProfileLayer layer{.name = text_of(object, "name", place)};
  const Json& parameters = array_of(object, "parameters", place);
  for (std::size_t i = 0; i < parameters.size(); ++i)
    layer.parameters.push_back(tensor_of(parameters[i], place.inside("parameters", i)));
  layer.forward = amount_of(object, "forward", place);
  layer.backward = amount_of(object, "backward", place);
  return layer;
}

}  // namespace

std::size_t ProfileTensor::count() const {
  std::size_t count = 1;
  for (const std::int64_t size : shape) count *= static_cast<std::size_t>(size);
  return count;
}

std::size_t ProfileTensor::rows() const {
  return shape.size() < 2 ? 1 : static_cast<std::size_t>(shape.front());
}

std::size_t ProfileTensor::columns() const {
  return rows() == 0 ? 0 : count() / rows();
}

std::size_t LayerProfile::parameters() const {
  std::size_t count = 0;
  for (const ProfileLayer& layer : layers) {
    for (const ProfileTensor& tensor : layer.parameters) count += tensor.count();
  }
  return count;
}

std::size_t LayerProfile::tensors() const {
  std::size_t count = 0;
  for (const ProfileLayer& layer : layers) count += layer.parameters.size();
  return count;
}

void normalize_shares(LayerProfile& profile) {
  double total = 0;
  for (const ProfileLayer& layer : profile.layers) {
    if (!(layer.forward >= 0) || !(layer.backward >= 0))
      refuse("{}: layer {}: a share is negative", profile.name, layer.name);
    total += layer.forward + layer.backward;
  }
  if (!(total > 0) || !std::isfinite(total)) {
    refuse("{}: the layers take no time; set their \"forward\" and \"backward\", in any unit",
           profile.name);
  }
  for (ProfileLayer& layer : profile.layers) {
    layer.forward /= total;
    layer.backward /= total;
  }
}

std::string to_json(const LayerProfile& profile) {
  Json json = {{"name", profile.name}};
  if (profile.compute > Duration::zero())
    json["compute_ms"] = std::chrono::duration<double, std::milli>(profile.compute).count();
  json["layers"] = Json::array();
  for (const ProfileLayer& layer : profile.layers) {
    Json parameters = Json::array();
    for (const ProfileTensor& tensor : layer.parameters)
      parameters.push_back({{"name", tensor.name}, {"shape", tensor.shape}});
    json["layers"].push_back({{"name", layer.name},
                              {"forward", layer.forward},
                              {"backward", layer.backward},
                              {"parameters", std::move(parameters)}});
  }
  return json.dump(1) + "\n";
}

LayerProfile parse_profile(std::string_view json, const std::string& source) {
  const Json parsed = Json::parse(json, nullptr, /*allow_exceptions=*/false);
  if (parsed.is_discarded()) refuse("{}: not valid JSON", source);
  const Place top{source, ""};
  const Json& layers = array_of(parsed, "layers", top);
  LayerProfile profile{.name = text_of(parsed, "name", top)};
  const std::chrono::duration<double, std::milli> compute(amount_of(parsed, "compute_ms", top));
  if (compute > std::chrono::hours(1)) top.refuse_here("compute_ms", "at most an hour");
  profile.compute = std::chrono::duration_cast<Duration>(compute);
  for (std::size_t i = 0; i < layers.size(); ++i)
    profile.layers.push_back(layer_of(layers[i], top.inside("layers", i)));
  normalize_shares(profile);
  return profile;
}

LayerProfile read_profile(const std::string& path) {
  return parse_profile(value_or_throw(read_file(path)), path);
}

void write_profile(const LayerProfile& profile, const std::string& path) {
  write_file(path, to_json(profile));
}

}  // namespace gradwire::workload
