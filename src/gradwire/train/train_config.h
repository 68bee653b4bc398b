#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <string_view>
#include <vector>

#include <nlohmann/json_fwd.hpp>

#include "gradwire/data/sampler.h"
#include "gradwire/gradient/defaults.h"
#include "gradwire/gradient/overlap.h"
#include "gradwire/train/local_sgd_config.h"
#include "gradwire/train/loss_scaler.h"
#include "gradwire/train/optimizers_config.h"
#include "gradwire/train/precision.h"
#include "gradwire/train/zero/zero_config.h"

namespace gradwire {

/// What a training configuration says; docs/training.md has the same with explanations.
struct ModelConfig {
  /// "convnet", "mlp" or "resnet" for images, "transformer" or "gpt" for text.
  std::string name = "convnet";
  std::int64_t channels = 16;     ///< convnet: of the first convolution; the second has twice.
                                  ///< resnet: of the first stage; each has twice the one before.
  std::int64_t blocks = 1;        ///< resnet: residual blocks in each of the four stages.
  std::int64_t groups = 8;        ///< resnet: of channels that are normalised together.
  std::int64_t hidden = 128;      ///< Width of the hidden fully connected layer.
  double dropout = 0;             ///< Before the last layer; gpt: in each, and of the embedding.
  std::int64_t vocabulary = 256;  ///< gpt: classes of characters, at least as many as data has.
  std::int64_t width = 64;        ///< transformer: of what stands for a character.
  std::int64_t layers = 2;        ///< transformer.
  std::int64_t heads = 4;         ///< transformer; they divide the width.
  std::int64_t context = 64;      ///< transformer: most characters at a time; DataConfig::context.
  /// Blocks, from the first, that keep nothing but their input for backward:
  /// activation_checkpointing.number_checkpoints.
  std::int64_t checkpoints = 0;
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
  double bucket_cap_mb = kBucketMegabytes;
  bool broadcast_buffers = true;
  bool find_unused_parameters = false;
  Overlap overlap = Overlap::full;
  std::string codec = "none";
  std::int64_t codec_min_elements = kCodecMinElements;
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
  ZeroConfig zero;
  std::int64_t epochs = 1;
  std::int64_t batch_size = 128;  ///< Over all ranks.
  std::int64_t accumulation_steps = 1;
  double gradient_clipping = 0;            ///< Most norm of all gradients together; 0: any.
  Precision precision = Precision::fp32;   ///< Of computing.
  Precision parameters = Precision::fp32;  ///< Of parameters and gradients; with ZeRO only.
  LossScalerOptions loss_scaling;          ///< With precision fp16.
  std::uint64_t seed = 1;
  std::string checkpoint = "model.safetensors";  ///< In the output folder; empty: none is written.
  /// Steps between checkpoints that a run can go on from; 0: one at the end, of the model alone.
  std::int64_t checkpoint_every = 0;
  std::string checkpoint_folder = "checkpoints";  ///< Of those, in the output folder.
  std::int64_t checkpoint_keep = 2;               ///< How many of the newest remain; 0: all.
  /// Such a checkpoint, or a folder of them, to go on from; empty: a new run; "auto": the newest of
  /// this output folder, if there is one.
  std::string resume;
  std::string model_text = "{}";  ///< What the configuration says of the model: JSON.
  std::string trace;  ///< File in the output folder for a trace; empty: none is recorded.
};

/// Throws Exception(invalid_argument) that names the key: unknown (with the nearest right one), of
/// the wrong type, or out of range.
TrainConfig parse_train_config(const nlohmann::json& json);

/// Reads the file (comments as in C++ are allowed), applies the settings ("key.sub=value") in order
/// and parses the result. Throws Exception(invalid_argument), for wrong JSON with its line.
TrainConfig load_train_config(const std::filesystem::path& path,
                              const std::vector<std::string>& settings = {});

/// What load_train_config() parses, the settings applied: JSON, for a run's record.
std::string configuration_text(const std::filesystem::path& path,
                               const std::vector<std::string>& settings);

/// Samples of a batch that each of `ranks` takes. Throws
/// Exception(invalid_argument) if the batch does not divide by ranks and accumulation steps.
std::int64_t batch_size_per_rank(const TrainConfig& config, int ranks);

}  // namespace gradwire
