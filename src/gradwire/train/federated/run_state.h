#pragma once

#include <filesystem>
#include <string>

#include <nlohmann/json_fwd.hpp>

#include "gradwire/federated/fairness.h"
#include "gradwire/train/federated/global_model.h"
#include "gradwire/train/federated/proximal.h"

namespace gradwire {

/// Parts of the JSON that checkpoints of federated learning have beside the model, and back.
nlohmann::json to_json(const federated::ClientRecord& record);
federated::ClientRecord client_record_of(const nlohmann::json& json);
nlohmann::json to_json(const AdaptiveProximal& proximal);
AdaptiveProximal proximal_of(const nlohmann::json& json);

/// A checkpoint of the model, with `run` and the JSON of the configuration.
void save_checkpoint(GlobalModel& model, const std::filesystem::path& path, nlohmann::json run,
                     const std::string& configuration);
/// Goes on from save_checkpoint(), and returns its `run`. Throws as GlobalModel::load(), and with
/// the first key that differs if the checkpoint has another configuration, but for rounds and
/// data.path. A checkpoint without a configuration is accepted, and logged.
nlohmann::json load_checkpoint(GlobalModel& model, const std::filesystem::path& path,
                               const std::string& configuration);

}  // namespace gradwire
