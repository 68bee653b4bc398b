#pragma once

#include <filesystem>

#include <nlohmann/json_fwd.hpp>

#include "gradwire/federated/fairness.h"
#include "gradwire/train/federated/proximal.h"

namespace gradwire {

/// Parts of the JSON that checkpoints of federated learning have beside the model, and back.
nlohmann::json to_json(const federated::ClientRecord& record);
federated::ClientRecord client_record_of(const nlohmann::json& json);
nlohmann::json to_json(const AdaptiveProximal& proximal);
AdaptiveProximal proximal_of(const nlohmann::json& json);

/// Throws Exception(invalid_argument), with the first key that differs, if the checkpoint's `run`
/// has another configuration, but for rounds and data.path. A checkpoint without a configuration is
/// accepted, and logged.
void check_configuration(const nlohmann::json& run, const nlohmann::json& configuration,
                         const std::filesystem::path& checkpoint);

}  // namespace gradwire
