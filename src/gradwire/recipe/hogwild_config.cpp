#include "gradwire/recipe/hogwild_config.h"

#include <algorithm>
#include <string>

#include <fmt/format.h>

#include "gradwire/base/refuse.h"

namespace gradwire::recipe {
namespace {

/// The updates are without locks, and momentum would be a dense one.
void check_hogwild_optimizer(const OptimizerConfig& optimizer) {
  const bool is_sgd = optimizer.name == "sgd";
  if (!is_sgd && optimizer.name != "adagrad") {
    refuse(
        "optimizer.name \"{}\" is incompatible with hogwild; use \"sgd\" with \"momentum\": 0, or "
        "\"adagrad\"",
        optimizer.name);
  }
  double momentum = optimizer.momentum;
  for (const ParameterGroup& group : optimizer.groups) {
    momentum = std::max(momentum, group.settings.momentum);
  }
  if (momentum == 0) return;
  refuse("optimizer.momentum {:g} is incompatible with hogwild; set it to 0", momentum);
}

}  // namespace

HogwildConfig read_hogwild(JsonFields json) {
  constexpr std::int64_t kManyThreads = 4096;
  HogwildConfig config{.enabled = true};
  config.threads = json.integer_or("threads", 0, 0, kManyThreads);
  config.oversubscribe = json.flag_or("oversubscribe", false);
  json.refuse_others();
  return config;
}

void check_hogwild(JsonFields& root, const TrainConfig& config) {
  if (!config.hogwild.enabled) return;
  const auto refuse_if = [](bool wrong, const std::string& key) {
    if (wrong) refuse("{} is incompatible with hogwild; leave one of them out", key);
  };
  refuse_if(!root.object_or_empty("mesh").empty(), "mesh");
  refuse_if(config.zero.stage > 0, "zero");
  refuse_if(config.servers.enabled, "servers");
  refuse_if(config.local_steps.enabled, "local_steps");
  refuse_if(config.model.tie_word_embeddings, "model.tie_word_embeddings");
  refuse_if(config.model.checkpoints > 0, "activation_checkpointing.number_checkpoints");
  refuse_if(config.accumulation_steps > 1, "accumulation_steps");
  refuse_if(config.gradient_clipping > 0, "gradient_clipping");
  refuse_if(config.precision == Precision::fp16, "precision \"fp16\"");
  refuse_if(config.checkpoint_every > 0, "checkpoint_every");
  refuse_if(!config.resume.empty(), "resume");
  refuse_if(!config.trace.empty(), "trace");
  const JsonFields data = root.object_or_empty("data");
  for (const auto* key : {"uneven", "prefetch"})
    refuse_if(data.has(key), fmt::format("data.{}", key));
  refuse_if(config.parallel.codec != "none", "codec");
  for (const std::string& key : root.object_or_empty("parallel").keys()) {
    refuse_if(true, "parallel." + key);
  }
  check_hogwild_optimizer(config.optimizer);
}

std::int64_t batch_size_per_thread(const TrainConfig& config, int threads, int ranks) {
  if (ranks > 1) {
    refuse(
        "hogwild is of threads of one process, not of {} ranks; use -n 1, or servers with mode "
        "\"async\" for several",
        ranks);
  }
  if (config.batch_size % threads != 0) {
    refuse("batch_size {} is not divisible by {} threads; make it a multiple of {}",
           config.batch_size, threads, threads);
  }
  return config.batch_size / threads;
}

}  // namespace gradwire::recipe
