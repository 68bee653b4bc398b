#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <map>
#include <optional>

#include <torch/torch.h>

#include "gradwire/base/clock.h"
#include "gradwire/data/data_set.h"
#include "gradwire/emulation/pass_times.h"
#include "gradwire/host/group.h"
#include "gradwire/memory/memory_tracker.h"
#include "gradwire/recipe/models.h"
#include "gradwire/recipe/train_config.h"
#include "gradwire/recipe/trained_model.h"
#include "gradwire/report/progress.h"
#include "gradwire/report/run_record.h"
#include "gradwire/report/training_summary.h"
#include "gradwire/trace/trace.h"
#include "gradwire/train/data_parallel/accumulate.h"
#include "gradwire/train/optim/mixed_precision.h"

namespace gradwire::recipe {

/// The environment of a training run.
struct TrainerContext {
  ProcessGroup group;
  torch::Device device = torch::kCPU;  ///< Where this rank computes.
  const Clock* clock = nullptr;
  report::ProgressPrinter* progress = nullptr;  ///< Null: no progress display. One rank prints.
  std::filesystem::path output = ".";           ///< Folder for the checkpoint.
  std::string configuration;                    ///< JSON, for a log of the order of updates.
  TraceRecorder* trace = nullptr;   ///< Records how each step spends its time; may be null.
  MemoryTracker* memory = nullptr;  ///< Tracks memory by category; may be null.
  /// Ranks that wait in each step, as if their machines were slower.
  std::map<Rank, emulation::SlowWorker> slow = {};
  /// Called on rank 0 after each checkpoint of the run, with the record so far: it is not tested.
  /// May be null.
  std::function<void(report::RunRecord)> on_saved = nullptr;
  /// While it trains, SIGTERM and SIGUSR1 make it save a checkpoint and stop, if the configuration
  /// has checkpoint_every (stop_request.h). For processes of one rank.
  bool stops_on_signals = false;
};

/// A finished run: the model and its statistics.
struct TrainingResult {
  /// With ZeRO stage 3, parameters are present only if a checkpoint was written. Null for a
  /// pipeline.
  torch::nn::Sequential model;
  report::TrainingSummary summary;
  report::RunRecord record;  ///< For `gradwire report`, as seen by this rank.
  /// This rank has written the checkpoint: rank 0, or the first worker that is not lost.
  bool concludes = false;
};

/// Trains as configured, on all ranks of the group together. At the end rank 0 writes the
/// checkpoint. With servers that deal the samples (ServersConfig::deals()), the first worker that
/// is not lost evaluates and writes alone, and only its result has a summary. Other runs are
/// bitwise reproducible: the result depends only on the configuration, the
/// number of ranks and the number of torch threads. Collective: every rank must pass the same
/// configuration. The test accuracy is that of the final model on the test images, each counted
/// once. The summary is the same on all ranks. Throws Exception; Stopped on all ranks if one got a
/// signal.
TrainingResult train(const TrainConfig& config, const TrainerContext& context);

/// Serves the parameters of a run, on a rank that only serves, until all workers have left. Then
/// ends the process with status 0. Throws Exception.
[[noreturn]] void serve(const TrainConfig& config, const ProcessGroup& group);

/// Returns the number of ranks that share this rank's cores: `local_ranks`, or more if other hosts
/// of the job are containers or namespaces on the same machine. Collective. A rank that may not use
/// all cores of its machine (affinity, quota) shares its own with `local_ranks` alone.
int ranks_sharing_cores(c10d::ProcessGroup& group, int local_ranks);

/// Torch threads for each of `local_ranks` ranks that share `cores` cores.
int threads_per_rank(int cores, int local_ranks);

}  // namespace gradwire::recipe
