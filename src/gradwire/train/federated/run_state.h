#pragma once

#include <nlohmann/json_fwd.hpp>

#include "gradwire/federated/fairness.h"
#include "gradwire/train/federated/proximal.h"

namespace gradwire {

/// Parts of the JSON that checkpoints of federated learning have beside the model, and back.
nlohmann::json to_json(const federated::ClientRecord& record);
federated::ClientRecord client_record_of(const nlohmann::json& json);
nlohmann::json to_json(const AdaptiveProximal& proximal);
AdaptiveProximal proximal_of(const nlohmann::json& json);

}  // namespace gradwire
