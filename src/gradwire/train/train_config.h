#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <string_view>
#include <vector>

#include <nlohmann/json_fwd.hpp>

#include "gradwire/data/sampler.h"
#include "gradwire/gradient/overlap.h"
#include "gradwire/train/local_sgd_config.h"
#include "gradwire/train/optimizers_config.h"
#include "gradwire/train/precision.h"

namespace gradwire {

/// What a training configuration says; docs/training.md has the same with explanations.
struct ModelConfig {
  std::string name = "convnet";  ///< "convnet" or "mlp" for images, "transformer" for text.
  std::int64_t channels = 16;    ///< convnet: of the first convolution; the second has twice.
  std::int64_t hidden = 128;     ///< Width of the hidden fully connected layer.
  double dropout = 0;            ///< Before the last layer.
  std::int64_t width = 64;       ///< transformer: of what stands for a character.
  std::int64_t layers = 2;       ///< transformer.
  std::int64_t heads = 4;        ///< transformer; they divide the width.
  std::int64_t context = 64;     ///< transformer: most characters at a time; DataConfig::context.
};

struct DataConfig {
  std::string name = "fashion_mnist";  ///< Or "text".
  std::string path;        ///< Folder with the four files, or the text; empty: Debian's package's.
  std::int64_t limit = 0;  ///< Train on the first so many samples only; 0: all.
  std::int64_t context = 64;  ///< text: characters of a sample.
  UnevenBatch uneven = UnevenBatch::drop;
  std::int64_t prefetch = 4;  ///< Batches prepared ahead.
};

struct ScheduleConfig {
  double warmup_epochs = 0;        ///< The rate rises linearly over so many (parts of) epochs.
  std::string decay = "constant";  ///< Afterwards: "constant" or "cosine".
  double final_fraction = 0;       ///< cosine: what is left of the rate at the end.
};

/// What DataParallelOptions says of these.
struct ParallelConfig {
  double bucket_cap_mb = 25;
  bool broadcast_buffers = true;
  bool find_unused_parameters = false;
  Overlap overlap = Overlap::full;
  std::string codec = "none";
  std::int64_t codec_min_elements = 1024;
  std::int64_t codec_warmup_steps = 0;
  bool check_finite = false;
};

struct TrainConfig {
  ModelConfig model;
  DataConfig data;
  OptimizerConfig optimizer;
  ScheduleConfig schedule;
  ParallelConfig parallel;
  LocalStepsConfig local_steps;
  std::int64_t epochs = 1;
  std::int64_t batch_size = 128;  ///< Over all ranks.
  std::int64_t accumulation_steps = 1;
  Precision precision = Precision::fp32;
  std::uint64_t seed = 1;
  std::string checkpoint = "model.safetensors";  ///< In the output folder; empty: none is written.
  /// Steps between checkpoints that a run can go on from; 0: one at the end, of the model alone.
  std::int64_t checkpoint_every = 0;
  std::string resume;  ///< Such a checkpoint to go on from; empty: a new run.
  std::string trace;   ///< File in the output folder for a trace; empty: none is recorded.
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
