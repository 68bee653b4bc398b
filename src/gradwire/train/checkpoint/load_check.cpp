#include "gradwire/train/checkpoint/load_check.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "gradwire/base/refuse.h"
#include "gradwire/checkpoint/consolidate.h"
#include "gradwire/train/checkpoint/stored_types.h"

namespace gradwire {
namespace {

/// Returns the parameter of a state: "optimizer.STATE.PARAMETER".
std::string parameter_of(const std::string& name) {
  const auto dot = name.find('.', std::string_view(kOptimizerPrefix).size());
  return dot == std::string::npos ? "" : name.substr(dot + 1);
}

std::string state_of(const std::string& name) {
  const auto begin = std::string_view(kOptimizerPrefix).size();
  return name.substr(begin, name.find('.', begin) - begin);
}

/// Returns the names of a parameter's states in the checkpoint.
std::vector<std::string> states_in(const Manifest& manifest, const std::string& parameter) {
  std::vector<std::string> states;
  for (const auto& tensor : manifest.tensors) {
    if (!tensor.name.starts_with(kOptimizerPrefix)) continue;
    if (parameter_of(tensor.name) == parameter) states.push_back(state_of(tensor.name));
  }
  return states;
}

std::string another_model(const CheckpointName& checkpoint) {
  return fmt::format(
      "{} is of another model ({}): configure the model as it was saved, or use another checkpoint",
      checkpoint.path.string(), checkpoint.manifest.model);
}

std::string another_optimizer(const CheckpointName& checkpoint) {
  return fmt::format(
      "{} is of a run with another optimizer or other local steps: configure both as they were "
      "saved",
      checkpoint.path.string());
}

std::string file_of(const ManifestTensor& tensor, const Manifest& manifest) {
  return tensor.pieces.empty() ? kManifestName : manifest.files[tensor.pieces[0].file].name;
}

}  // namespace

const ManifestTensor* source_of(const TensorPiece& piece, const CheckpointName& checkpoint,
                                const std::map<std::string, const ManifestTensor*>& by_name) {
  const auto found = by_name.find(piece.name);
  if (found == by_name.end()) {
    if (!piece.name.starts_with(kOptimizerPrefix)) {
      refuse(fmt::format("'{}' [{}] of this run's model is not in {}; {}", piece.name,
                         fmt::join(piece.shape, ", "), checkpoint.path.string(),
                         another_model(checkpoint)));
    }
    const auto states = states_in(checkpoint.manifest, parameter_of(piece.name));
    if (states.empty()) return nullptr;
    refuse(fmt::format("'{}' of '{}' is not in {}, which has {} of it; {}", state_of(piece.name),
                       parameter_of(piece.name), checkpoint.path.string(), fmt::join(states, ", "),
                       another_optimizer(checkpoint)));
  }
  const auto& tensor = *found->second;
  if (tensor.shape != piece.shape) {
    refuse(fmt::format("'{}' has shape [{}] in {} and [{}] in this run; {}", piece.name,
                       fmt::join(tensor.shape, ", "),
                       (checkpoint.path / file_of(tensor, checkpoint.manifest)).string(),
                       fmt::join(piece.shape, ", "), another_model(checkpoint)));
  }
  const auto stored = safetensors_type(tensor.type);
  const auto wanted = piece.data.scalar_type();
  if (stored == wanted || (c10::isFloatingType(stored) && c10::isFloatingType(wanted))) {
    return &tensor;
  }
  refuse(fmt::format("'{}' has elements of {} in {} and of {} in this run; {}", piece.name,
                     tensor.type, checkpoint.path.string(), safetensors_type_name(wanted),
                     another_model(checkpoint)));
}

void refuse_unused(const ManifestTensor& tensor, const CheckpointName& checkpoint) {
  const auto where = (checkpoint.path / file_of(tensor, checkpoint.manifest)).string();
  if (tensor.name.starts_with(kOptimizerPrefix)) {
    refuse(fmt::format("'{}' of '{}' in {} does not exist in this run; {}", state_of(tensor.name),
                       parameter_of(tensor.name), where, another_optimizer(checkpoint)));
  }
  refuse(fmt::format("'{}' [{}] in {} is not in this run's model; {}", tensor.name,
                     fmt::join(tensor.shape, ", "), where, another_model(checkpoint)));
}

}  // namespace gradwire
