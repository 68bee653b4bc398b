#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

#include <nlohmann/json_fwd.hpp>

#include "gradwire/federated/device_model.h"
#include "gradwire/federated/partial.h"
#include "gradwire/federated/quantizer_options.h"
#include "gradwire/federated/round_policy.h"
#include "gradwire/recipe/train_config.h"

namespace gradwire::recipe {

/// How the samples of a data set are divided among clients; data/partition.h has the kinds.
struct PartitionConfig {
  std::string kind = "iid";
  std::int64_t clients = 100;
  std::int64_t shards = 2;   ///< shards: of each client.
  double alpha = 0.5;        ///< dirichlet.
  std::int64_t classes = 2;  ///< classes: of each client.
  double held_out = 0;       ///< Share of each client's samples that it does not train with.
};

/// FedProx's synthetic data, of 60 features and 10 classes (data/synthetic_clients.h).
struct SyntheticConfig {
  bool enabled = false;
  double alpha = 1, beta = 1;
  std::uint64_t seed = 1;
};

/// Local training on clients.
struct LocalConfig {
  std::int64_t epochs = 1;
  std::int64_t batch_size = 10;  ///< 0: all samples of the client.
  OptimizerConfig optimizer;
  double proximal = 0;
  bool adapts_proximal = false;
  federated::Partial partial = federated::Partial::count;
};

/// A configuration of `gradwire federate`; docs/federated.md explains the keys.
struct FederatedConfig {
  ModelConfig model;
  DataConfig data;
  SyntheticConfig synthetic;
  PartitionConfig partition;
  std::int64_t rounds = 100;
  federated::RoundPolicy round;
  LocalConfig local;
  OptimizerConfig server;
  federated::QuantizerOptions update;
  bool sends_bf16 = false;
  federated::DeviceModel devices;
  double server_rate = 0;           ///< Bytes per second, each direction; 0: unlimited.
  std::int64_t evaluate_every = 1;  ///< Rounds between evaluations on test data.
  std::uint64_t seed = 1;
  std::string model_text = "{}";  ///< The object "model", as JSON.
  /// A safetensors file with the model's first values; empty: drawn by the seed.
  std::string model_file;
  std::vector<std::string> model_buffers;  ///< Patterns of its tensors that are buffers.
  bool names_model = true;                 ///< False: model_file is all that is known of the model.
  std::string text = "{}";                 ///< All of it, as JSON.
  /// Model, data, partition and seed as JSON, without paths of files, for clients; the
  /// model is null if names_model is false.
  std::string for_clients = "{}";
};

/// The program that reads a configuration. Keys that do nothing in it are refused.
enum class FederatedUse : std::uint8_t { simulate, serve, client };

/// Throws Exception(invalid_argument) as parse_train_config().
FederatedConfig parse_federated_config(const nlohmann::ordered_json& json, FederatedUse use);

/// Reads a file, in which settings "key.sub=value" replace values. Throws as parse_train_config().
FederatedConfig load_federated_config(const std::filesystem::path& path,
                                      const std::vector<std::string>& settings, FederatedUse use);

}  // namespace gradwire::recipe
