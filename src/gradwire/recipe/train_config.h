#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <string_view>
#include <vector>

#include <nlohmann/json_fwd.hpp>

#include "gradwire/data/click_options.h"
#include "gradwire/data/sampler.h"
#include "gradwire/pipeline/simulation.h"
#include "gradwire/recipe/tensor_plan.h"
#include "gradwire/step/bucket_plan.h"
#include "gradwire/step/local_steps.h"
#include "gradwire/step/overlap.h"
#include "gradwire/train/mesh_degrees.h"
#include "gradwire/train/optim/mixed_precision.h"

namespace gradwire {
class JsonFields;
}

namespace gradwire::recipe {

struct ParameterGroup;

/// Optimizer settings; docs/training.md explains them.
struct OptimizerConfig {
  /// "sgd", "adam", "adagrad", "radam", "yogi", "lars", "lamb" or "ranger_lars".
  std::string name = "sgd";
  double learning_rate = 0.05;
  double momentum = 0.9;             ///< sgd, lars.
  bool nesterov = false;             ///< sgd.
  double beta1 = 0.9;                ///< Those with has_moments().
  double beta2 = 0.999;              ///< The same.
  double epsilon = 1e-8;             ///< The same, and adagrad.
  double trust_coefficient = 0.001;  ///< lars, ranger_lars.
  std::int64_t lookahead_steps = 5;  ///< ranger_lars.
  double lookahead_rate = 0.5;       ///< ranger_lars.
  double weight_decay = 0;
  /// Scaling of the rate with the batch size: "none", "linear" or "sqrt".
  std::string scaling = "none";
  /// Batch size that learning_rate was tuned for; 0 without scaling.
  std::int64_t base_batch_size = 0;
  /// Parameters with other settings (parameter_groups.h).
  std::vector<ParameterGroup> groups;

  /// adam, radam, yogi, lamb, ranger_lars: running means of gradients and of their squares.
  bool has_moments() const;
  /// lars, lamb, ranger_lars: the norm of a whole tensor scales its step.
  bool takes_norms() const;
};

/// Parameters whose names match one of the patterns, in which '*' stands for any text.
struct ParameterGroup {
  std::vector<std::string> match;
  OptimizerConfig settings;  ///< All but name, scaling and groups may differ.
};

/// ZeRO in a configuration; docs/zero.md explains the keys, which have the names and meanings of
/// DeepSpeed's "zero_optimization".
struct ZeroConfig {
  std::int64_t stage = 0;  ///< 0: DataParallel.
  /// Maximum elements of a unit in stages 1 and 2; 0: parallel.bucket_cap_mb applies.
  std::int64_t reduce_bucket_size = 0;
  bool overlap_comm = true;
  std::int64_t stage3_prefetch_bucket_size = 1'000'000;      ///< Elements.
  std::int64_t stage3_param_persistence_threshold = 10'000;  ///< Elements of a block.
  /// "none", or "nvme": optimizer states are in files in the folder `nvme_path`.
  std::string offload_device = "none";
  std::string offload_path;
};

/// Rows of an embedding table on servers; docs/servers.md explains the keys.
struct ServedRowsConfig {
  bool enabled = false;  ///< The servers have the rows, and no other parameters.
  std::int64_t staleness = 0;
  std::string optimizer = "adagrad";
  double learning_rate = 0.01;
};

/// Parameter servers in a configuration; docs/servers.md explains the keys.
struct ServersConfig {
  bool enabled = false;
  std::int64_t count = 0;       ///< 0: one beside each worker.
  bool beside_workers = false;  ///< Otherwise on the last ranks of the job.
  std::string mode = "sync";    ///< ServersOptions::mode.
  double use = 1;
  double grace = 0;             ///< ServersOptions::grace, in seconds.
  bool weighs_samples = false;  ///< ServersOptions::weighs_samples.
  std::int64_t groups = 0;      ///< ServersOptions::groups.
  bool groups_beyond_8 = false;
  std::int64_t pull_every = 1;
  std::string pull_codec = "none";  ///< ServedOptions::pull_codec.
  std::string rate = "none";
  double scale = 1;                ///< Factor on all learning rates, or on those of `units`.
  std::vector<std::string> units;  ///< ServersOptions::units.
  std::int64_t mirror_every = 0;   ///< ServersOptions::mirror_every.
  std::string log;  ///< File in the output folder for the order of updates; empty: none.
  ServedRowsConfig rows;

  /// Whether servers deal the samples to workers, which take different numbers of steps.
  bool deals() const { return enabled && (mode != "sync" || use < 1); }
  /// Number of workers, or groups of them, that do not wait for each other.
  int asynchronous(int workers) const { return groups > 0 ? static_cast<int>(groups) : workers; }
  /// Number of ranks that only serve.
  int own_ranks() const { return enabled && !beside_workers ? static_cast<int>(count) : 0; }
};

/// Hogwild! in a configuration: threads of one process that share parameters.
struct HogwildConfig {
  bool enabled = false;
  std::int64_t threads = 0;    ///< 0: one for each usable core.
  bool oversubscribe = false;  ///< More threads than usable cores are not refused.
};

/// The model in a training configuration; docs/training.md explains all keys.
struct ModelConfig {
  /// "convnet", "mlp" or "resnet" for images, "transformer" or "gpt" for text, "dlrm" for
  /// clicks.
  std::string name = "convnet";
  /// convnet: channels of the first convolution; the second has twice as many. resnet: channels of
  /// the first stage; each stage has twice the previous.
  std::int64_t channels = 16;
  std::int64_t blocks = 1;    ///< resnet: residual blocks in each of the four stages.
  std::int64_t groups = 8;    ///< resnet: channel groups in group normalization.
  std::int64_t hidden = 128;  ///< Width of the hidden fully connected layers.
  /// Before the last layer; gpt: in each layer, and after the embedding.
  double dropout = 0;
  std::int64_t vocabulary = 256;  ///< gpt: vocabulary size, at least the data's.
  /// gpt: the output's weight is that of the embedding (Layers::tie). Only if ranks share
  /// a model.
  bool tie_word_embeddings = false;
  std::int64_t width = 64;  ///< transformer, gpt, dlrm: embedding width.
  std::int64_t layers = 2;  ///< transformer; mlp: fully connected layers.
  std::int64_t heads = 4;   ///< transformer; must divide the width.
  /// transformer: maximum characters in a sample; DataConfig::context.
  std::int64_t context = 64;
  /// dlrm: of the table, and of the samples: those of DataConfig::clicks.
  std::int64_t rows = 0, fields = 0, dense = 0;
  bool rows_are_served = false;  ///< dlrm: servers have the table (ServersConfig::rows).
  /// Number of blocks, from the first, with activation checkpointing:
  /// activation_checkpointing.number_checkpoints.
  std::int64_t checkpoints = 0;
};

struct DataConfig {
  std::string name = "fashion_mnist";  ///< Or "text", "click_through".
  /// Folder of the four files, or the text file; empty: the Debian package's.
  std::string path;
  std::int64_t limit = 0;     ///< Train on the first `limit` samples only; 0: all.
  std::int64_t context = 64;  ///< text: characters per sample.
  ClickOptions clicks;        ///< click_through.
  UnevenBatch uneven = UnevenBatch::drop;
  std::int64_t prefetch = 4;  ///< Batches prefetched.

  /// The name of samples that are not of a text.
  std::string samples() const { return name == "click_through" ? "samples" : "images"; }
};

struct ScheduleConfig {
  double warmup_epochs = 0;        ///< Epochs (possibly fractional) of linear warm-up.
  std::string decay = "constant";  ///< Afterwards: "constant" or "cosine".
  double final_fraction = 0;       ///< cosine: final rate as a fraction of the initial one.
};

/// Settings that are passed on to DataParallelOptions.
struct ParallelConfig {
  double bucket_cap_mb = step::kBucketMegabytes;
  bool broadcast_buffers = true;
  bool find_unused_parameters = false;
  step::Overlap overlap = step::Overlap::full;
  std::string codec = "none";
  std::int64_t codec_min_elements = step::kCodecMinElements;
  std::int64_t codec_warmup_steps = 0;
  bool check_finite = false;
};

/// Pipeline parallelism, with mesh.pipeline above 1; docs/training.md explains the keys.
struct PipelineConfig {
  std::int64_t micro_batches = 8;
  std::string schedule = "1f1b";  ///< A name of `gradwire schedule pipeline`.
  /// The value of Pipeline::Options::weights: "stash", "spectrain", ... with asynchronous
  /// schedules.
  std::string weights;
  std::vector<std::size_t> cut;  ///< Layers of each stage; empty: balanced by parameters.
  /// The costs that the schedule is made for; empty: stages of equal times, and an ideal network.
  pipeline::PipelineCosts costs;
  bool recompute = false;  ///< Value of Pipeline::Options::recompute.
  /// The codecs of activations between ranks, and of their gradients, as ActivationCodecs.
  std::string forward_codec = "none", backward_codec = "none";
};

/// Parts of the height and of the width of images, over the ranks of mesh.spatial.
struct SpatialConfig {
  int height = 1;
  int width = 1;
};

struct TrainConfig {
  ModelConfig model;
  DataConfig data;
  OptimizerConfig optimizer;
  ScheduleConfig schedule;
  ParallelConfig parallel;
  step::LocalStepsConfig local_steps;
  ZeroConfig zero;
  ServersConfig servers;
  HogwildConfig hogwild;
  std::string engine;  ///< "own" or "mpi"; empty: that of the job.
  std::string inside;  ///< "own": reductions in two levels, inside hosts and between them.
  std::vector<std::string> devices;  ///< Those of each process, each a rank; empty: one, the CPU.
  MeshDegrees mesh;
  PipelineConfig pipeline;
  TensorPlan tensor;
  SpatialConfig spatial;
  std::int64_t epochs = 1;
  std::int64_t batch_size = 128;  ///< Over all ranks.
  std::int64_t accumulation_steps = 1;
  /// Maximum norm of all gradients together; 0: no clipping.
  double gradient_clipping = 0;
  Precision precision = Precision::fp32;   ///< Precision of the computation.
  Precision parameters = Precision::fp32;  ///< Type of parameters and gradients; only with ZeRO.
  LossScalerOptions loss_scaling;          ///< Used with precision fp16.
  std::uint64_t seed = 1;
  /// Epochs between evaluations on the test data; 0: only at the end.
  std::int64_t evaluate_every = 0;
  std::string checkpoint = "model.safetensors";  ///< In the output folder; empty: none is written.
  /// Steps between checkpoints to resume from; 0: one at the end, of the model only.
  std::int64_t checkpoint_every = 0;
  std::string checkpoint_folder = "checkpoints";  ///< Folder of those, in the output folder.
  std::int64_t checkpoint_keep = 2;               ///< Number of newest checkpoints to keep; 0: all.
  /// Checkpoint, or folder of checkpoints, to resume from. Empty: a new run. "auto": the newest in
  /// this output folder, if any.
  std::string resume;
  std::string model_text = "{}";  ///< The configuration's "model" object, as JSON.
  std::string trace;              ///< Trace file in the output folder; empty: none is recorded.

  /// Parts of a replica's batch, if a Pipeline trains the model.
  std::int64_t micro_batches() const {
    return mesh.pipeline > 1 ? pipeline.micro_batches : accumulation_steps;
  }
  /// Ranks of each process.
  int devices_per_process() const { return devices.empty() ? 1 : static_cast<int>(devices.size()); }
  /// Returns true if a Pipeline trains the model, maybe of one stage: no rank has the whole model,
  /// or it has tied parameters.
  bool uses_pipeline() const {
    return mesh.pipeline > 1 || mesh.tensor > 1 || mesh.spatial > 1 || model.tie_word_embeddings;
  }
};

/// Reads an optimizer without groups from an object that has other keys too: its name from
/// `name_key`, and what else `usual` has by default.
OptimizerConfig read_optimizer_in(JsonFields& json, std::string_view name_key,
                                  OptimizerConfig usual);

/// The JSON of a configuration file, in which settings "key.sub=value" replace values.
nlohmann::ordered_json read_configuration(const std::filesystem::path& path,
                                          const std::vector<std::string>& settings);

/// Throws Exception(invalid_argument) that names the key if it is unknown (with the nearest known
/// one), of the wrong type, or out of range.
TrainConfig parse_train_config(const nlohmann::ordered_json& json);

/// Applies a "key.sub=value" setting to a configuration. The value is JSON if it parses ("0.1",
/// "true", "[1]"), otherwise a string. Throws Exception(invalid_argument) if "=" is missing or if
/// the key is inside a value that is not an object.
void apply_setting(nlohmann::ordered_json& config, std::string_view setting);

/// Reads the file (C++ comments are allowed), applies the settings ("key.sub=value") in order and
/// parses the result. Throws Exception(invalid_argument); for a JSON syntax error with the line.
TrainConfig load_train_config(const std::filesystem::path& path,
                              const std::vector<std::string>& settings = {});

/// Returns the JSON that load_train_config() parses, with the settings applied, for a run's record.
std::string configuration_text(const std::filesystem::path& path,
                               const std::vector<std::string>& settings);

/// Number of blocks "blockN" of the model.
std::int64_t blocks_of(const ModelConfig& model);

/// Replicas of the model on `ranks` ranks. Throws Exception(invalid_argument) if the mesh does not
/// fit.
int replicas_of(const TrainConfig& config, int ranks);

/// Samples of a batch per replica of the model. Throws Exception(invalid_argument) if the batch is
/// not divisible by replicas times accumulation steps, or the ranks by servers.groups.
std::int64_t batch_size_per_replica(const TrainConfig& config, int ranks);

}  // namespace gradwire::recipe
