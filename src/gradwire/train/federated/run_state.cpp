#include "gradwire/train/federated/run_state.h"

#include <nlohmann/json.hpp>

namespace gradwire {

nlohmann::json to_json(const federated::ClientRecord& record) {
  return {record.samples,         record.eligible, record.asked,     record.counted,
          record.compute_seconds, record.up_bytes, record.down_bytes};
}

federated::ClientRecord client_record_of(const nlohmann::json& json) {
  return {json.at(0), json.at(1), json.at(2), json.at(3), json.at(4), json.at(5), json.at(6)};
}

nlohmann::json to_json(const AdaptiveProximal& proximal) {
  return {{"mu", proximal.mu},
          {"falls", proximal.falls},
          {"last_loss", proximal.last_loss ? nlohmann::json(*proximal.last_loss) : nullptr}};
}

AdaptiveProximal proximal_of(const nlohmann::json& json) {
  AdaptiveProximal proximal{.mu = json.at("mu"), .falls = json.at("falls")};
  if (const auto& loss = json.at("last_loss"); !loss.is_null()) proximal.last_loss = loss;
  return proximal;
}

}  // namespace gradwire
