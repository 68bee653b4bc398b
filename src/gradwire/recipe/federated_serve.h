#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <memory>
#include <string>

#include <nlohmann/json_fwd.hpp>

#include "gradwire/recipe/federated_config.h"
#include "gradwire/train/federated/federated_client.h"
#include "gradwire/train/federated/served_model.h"

namespace gradwire::recipe {

struct ServeOptions {
  std::filesystem::path folder;  ///< For the model, its checkpoint and the rounds.
  bool resumes = false;          ///< Goes on from the folder's checkpoint.
  std::int64_t checkpoint_every = 1;
  std::function<void(const FederationRound&)> on_round;
  std::function<void()> on_complete;  ///< ServedModel::Options::on_complete.
};

/// The rounds in the folder of a server: a JSON object a line, as `gradwire federate simulate`
/// writes them.
inline constexpr const char* kRoundsFile = "rounds.jsonl";

/// A configuration's model, from its file or with its first values, to be served. Throws
/// Exception(invalid_argument) if the folder has a checkpoint and `resumes` is not set, or the
/// other way round.
std::unique_ptr<ServedModel> make_served_model(const FederatedConfig& config,
                                               const ServeOptions& options);

/// The rounds in the folder, those of earlier runs too, and fairness, as result_json().
nlohmann::ordered_json served_json(const std::filesystem::path& folder,
                                   const federated::ClientLedger& ledger);

/// The bits of updates and their sums, for users.
std::string served_widths_text(const FederatedConfig& config);

/// The local optimizer of a plan, and back; for FederatedClientOptions::optimizer.
std::string optimizer_json(const OptimizerConfig& config);
OptimizerFactory optimizer_from_json(const std::string& json);

/// The configuration that a server tells its clients, with this client's data.
FederatedConfig client_config(const std::string& configuration, const std::string& data_path);

}  // namespace gradwire::recipe
