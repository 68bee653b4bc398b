#include "gradwire/recipe/federated_serve.h"

#include <algorithm>
#include <cerrno>
#include <cmath>
#include <cstring>
#include <fstream>
#include <sstream>
#include <utility>

#include <fmt/format.h>
#include <fnmatch.h>
#include <nlohmann/json.hpp>

#include "gradwire/base/file.h"
#include "gradwire/base/json_fields.h"
#include "gradwire/base/refuse.h"
#include "gradwire/federated/update_quantizer.h"
#include "gradwire/recipe/federated_run.h"
#include "gradwire/recipe/optimizers.h"
#include "gradwire/train/checkpoint/safetensors.h"

namespace gradwire::recipe {
namespace {

/// The floating tensors of a file, in order of their names.
FederatedTensors tensors_in(const FederatedConfig& config) {
  FederatedTensors tensors;
  for (auto& [name, tensor] : load_safetensors(config.model_file).tensors) {
    if (!tensor.is_floating_point()) continue;  // Counters of a module; clients have their own.
    const bool is_buffer = std::ranges::any_of(config.model_buffers, [&](const std::string& one) {
      return ::fnmatch(one.c_str(), name.c_str(), 0) == 0;
    });
    (is_buffer ? tensors.averaged : tensors.parameters).push_back({name, tensor});
  }
  if (tensors.parameters.empty()) refuse("{} has no parameters", config.model_file);
  return tensors;
}

FederatedTensors first_values(const FederatedConfig& config) {
  if (!config.names_model) return tensors_in(config);
  return federated_tensors(*make_module(config).module);
}

std::vector<nlohmann::ordered_json> rounds_in(const std::filesystem::path& folder) {
  std::vector<nlohmann::ordered_json> rounds;
  std::ifstream file(folder / kRoundsFile);
  for (std::string line; std::getline(file, line);) {
    auto row = nlohmann::ordered_json::parse(line, nullptr, false);
    if (row.is_object() && row.contains("round")) rounds.push_back(std::move(row));
  }
  return rounds;
}

/// Without those that the checkpoint does not have.
void keep_rounds(const std::filesystem::path& folder, std::int64_t last) {
  std::string text;
  for (const auto& row : rounds_in(folder))
    if (row.at("round") <= last) text += row.dump() + "\n";
  write_file(folder / kRoundsFile, text);
}

void append_round(const std::filesystem::path& folder, const FederationRound& round) {
  std::ofstream file(folder / kRoundsFile, std::ios::app);
  file << round_json(round).dump() << "\n" << std::flush;
  if (file) return;
  throw Exception(ErrorKind::system,
                  fmt::format("{} cannot be written: {}", (folder / kRoundsFile).string(),
                              std::strerror(errno)));
}

void check_folder(const ServeOptions& options) {
  const bool has_begun = std::filesystem::exists(options.folder / ServedModel::kCheckpoint);
  if (has_begun && !options.resumes) {
    refuse("{} has a checkpoint of an earlier run: go on with --resume, or use another folder",
           options.folder.string());
  }
  if (!has_begun && options.resumes)
    refuse("{} has no checkpoint to go on from: leave out --resume", options.folder.string());
  check_writable(options.folder / ServedModel::kCheckpoint);
}

}  // namespace

std::unique_ptr<ServedModel> make_served_model(const FederatedConfig& config,
                                               const ServeOptions& options) {
  check_folder(options);
  const std::filesystem::path folder = options.folder;
  auto model = std::make_unique<ServedModel>(
      plan_of(config), first_values(config),
      ServedModel::Options{.folder = folder,
                           .checkpoint_every = options.checkpoint_every,
                           .optimizer = optimizer_json(config.local.optimizer),
                           .configuration = config.for_clients,
                           .on_round =
                               [folder, told = options.on_round](const auto& round) {
                                 append_round(folder, round);
                                 if (told) told(round);
                               },
                           .on_complete = options.on_complete});
  keep_rounds(folder, options.resumes ? model->resume() : -1);
  return model;
}

nlohmann::ordered_json served_json(const std::filesystem::path& folder,
                                   const federated::ClientLedger& ledger) {
  FederationResult result;
  for (const auto& [id, record] : ledger) result.clients.push_back(record);
  auto json = result_json(result);
  json["rounds"] = rounds_in(folder);
  return json;
}

std::string served_widths_text(const FederatedConfig& config) {
  constexpr std::int64_t kExample = 1000;
  const bool is_plain = config.round.selection == federated::Selection::proportional;
  const std::int64_t weights = config.round.use * (is_plain ? 1 : kExample);
  const auto widths = [&](int bits) {
    return fmt::format("{} bits, summed in {}", bits, federated::sum_bits(bits, weights));
  };
  const int first = federated::first_round(config.update).bits, later = config.update.bits;
  std::string text = "elements of updates: " + widths(later);
  if (first != later) text += fmt::format("; in the first round {}", widths(first));
  text += "; clients upload the bits of the sum";
  if (!is_plain) text += fmt::format(" ({} clients of {} samples)", config.round.use, kExample);
  return text + secure_text(config);
}

// --- clients ---

std::string optimizer_json(const OptimizerConfig& config) {
  nlohmann::ordered_json json{{"name", config.name},
                              {"learning_rate", config.learning_rate},
                              {"weight_decay", config.weight_decay}};
  if (config.has_moments()) {
    json["beta1"] = config.beta1;
    json["beta2"] = config.beta2;
  }
  if (config.has_moments() || config.name == "adagrad") json["epsilon"] = config.epsilon;
  if (config.name == "sgd" || config.name == "lars") json["momentum"] = config.momentum;
  if (config.name == "sgd") json["nesterov"] = config.nesterov;
  if (config.name == "lars" || config.name == "ranger_lars")
    json["trust_coefficient"] = config.trust_coefficient;
  if (config.name == "ranger_lars") {
    json["lookahead_steps"] = config.lookahead_steps;
    json["lookahead_rate"] = config.lookahead_rate;
  }
  return json.dump();
}

OptimizerFactory optimizer_from_json(const std::string& json) {
  const OptimizerConfig config =
      value_or_throw(read_json_fields(json, "the plan's optimizer", [](JsonFields fields) {
        OptimizerConfig read = read_optimizer_in(fields, "name", {});
        fields.refuse_others();
        return read;
      }));
  return [config](const std::vector<NamedTensor>& parameters) {
    return make_optimizer(config, parameters);
  };
}

FederatedConfig client_config(const std::string& configuration, const std::string& data_path) {
  auto json = nlohmann::ordered_json::parse(configuration);
  if (json.contains("model") && json["model"].is_null()) {
    throw Exception(ErrorKind::unsupported,
                    "the server has the values of a model, and not its code: take part with "
                    "gradwire::FederatedClient, or gradwire.FederatedClient in Python, and the "
                    "module (docs/federated.md)");
  }
  if (!data_path.empty()) json["data"]["path"] = data_path;
  return parse_federated_config(json, FederatedUse::client);
}

}  // namespace gradwire::recipe
