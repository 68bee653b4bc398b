#pragma once

#include <filesystem>

#include "gradwire/base/clock.h"
#include "gradwire/report/progress.h"
#include "gradwire/report/run_record.h"
#include "gradwire/report/trace.h"
#include "gradwire/report/training_summary.h"
#include "gradwire/train/group.h"
#include "gradwire/train/memory/memory_tracker.h"
#include "gradwire/train/models.h"
#include "gradwire/train/train_config.h"

namespace gradwire {

/// Where a training run happens.
struct TrainerSurroundings {
  ProcessGroup group;
  const Clock* clock = nullptr;
  ProgressPrinter* progress = nullptr;  ///< Null: none is shown. Of use on rank 0.
  std::filesystem::path output = ".";   ///< Folder for the checkpoint.
  TraceRecorder* trace = nullptr;       ///< Gets what each step spends its time on; null: nobody.
  MemoryTracker* memory = nullptr;      ///< Counts what memory is for; null: nobody does.
};

/// A finished run: the model and how it went.
struct TrainingResult {
  torch::nn::Sequential model;  ///< In ZeRO's third stage with parameters if a checkpoint has them.
  TrainingSummary summary;
  RunRecord record;  ///< For `gradwire report`, as this rank saw it.
};

/// Trains as the configuration says, on all ranks of the group together; at the end rank 0 writes
/// the checkpoint. The result depends only on the configuration, the number of ranks and the number
/// of torch threads: a run repeats bit for bit. Collective: every rank calls it with the same
/// configuration. The test accuracy is that of the final model on the test images, each counted
/// once; the summary is the same on all ranks. Throws Exception.
TrainingResult train(const TrainConfig& config, const TrainerSurroundings& surroundings);

/// Torch threads for each of `local_ranks` ranks that share `cores` cores.
int threads_per_rank(int cores, int local_ranks);

}  // namespace gradwire
