#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <string_view>
#include <vector>

#include <nlohmann/json_fwd.hpp>

#include "gradwire/data/sampler.h"

namespace gradwire {

/// What a training configuration says; docs/training.md has the same with explanations.
struct ModelConfig {
  std::string name = "convnet";  ///< "convnet" or "mlp".
  std::int64_t channels = 16;    ///< convnet: of the first convolution; the second has twice.
  std::int64_t hidden = 128;     ///< Width of the hidden fully connected layer.
  double dropout = 0;            ///< Before the last layer.
};

struct DataConfig {
  std::string path;        ///< Folder with the four files; empty: where Debian's package puts them.
  std::int64_t limit = 0;  ///< Train on the first so many images only; 0: all.
  UnevenBatch uneven = UnevenBatch::drop;
  std::int64_t prefetch = 4;  ///< Batches prepared ahead.
};

struct OptimizerConfig {
  std::string name = "sgd";  ///< "sgd" or "adam".
  double learning_rate = 0.05;
  double momentum = 0.9;  ///< sgd.
  bool nesterov = false;  ///< sgd.
  double beta1 = 0.9;     ///< adam.
  double beta2 = 0.999;   ///< adam.
  double epsilon = 1e-8;  ///< adam.
  double weight_decay = 0;
};

struct ScheduleConfig {
  double warmup_epochs = 0;        ///< The rate rises linearly over so many (parts of) epochs.
  std::string decay = "constant";  ///< Afterwards: "constant" or "cosine".
  double final_fraction = 0;       ///< cosine: what is left of the rate at the end.
};

struct ParallelConfig {
  double bucket_cap_mb = 25;
  bool broadcast_buffers = true;
  bool find_unused_parameters = false;
};

struct TrainConfig {
  ModelConfig model;
  DataConfig data;
  OptimizerConfig optimizer;
  ScheduleConfig schedule;
  ParallelConfig parallel;
  std::int64_t epochs = 1;
  std::int64_t batch_size = 128;  ///< Over all ranks.
  std::int64_t accumulation_steps = 1;
  std::uint64_t seed = 1;
  std::string checkpoint = "model.safetensors";  ///< In the output folder; empty: none is written.
};

/// Throws Exception(invalid_argument) that names the key: unknown (with the nearest right one), of
/// the wrong type, or out of range.
TrainConfig parse_train_config(const nlohmann::json& json);

/// Reads the file (comments as in C++ are allowed), applies the settings ("key.sub=value") in order
/// and parses the result. Throws Exception(invalid_argument), for wrong JSON with its line.
TrainConfig load_train_config(const std::filesystem::path& path,
                              const std::vector<std::string>& settings = {});

/// Samples of a batch that each of `ranks` takes. Throws
/// Exception(invalid_argument) if the batch does not divide by ranks and accumulation steps.
std::int64_t batch_size_per_rank(const TrainConfig& config, int ranks);

}  // namespace gradwire
