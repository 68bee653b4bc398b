#pragma once

#include <cstdint>
#include <string>

#include "gradwire/base/types.h"
#include "gradwire/report/memory_peak.h"

namespace gradwire {

/// How a training run went. Times and bytes of a step are medians over steps (bytes: the mean),
/// averaged over ranks; a rank that waits for slower ones counts that as communication.
struct TrainingSummary {
  int ranks = 1;
  std::int64_t steps = 0;
  double test_accuracy = 0;  ///< 0 .. 1.
  double test_loss = 0;
  std::int64_t test_images = 0;
  double images_per_second = 0;  ///< While training, over all ranks.
  Duration training{};           ///< Without evaluation.
  double compute_seconds = 0;    ///< T_s: a step without waiting for communication.
  double exposed_seconds = 0;    ///< T_c: waiting for communication that compute did not hide.
  double data_seconds = 0;       ///< Waiting for the next batch; in neither of the two.
  double gradient_bytes = 0;     ///< G: what a step all-reduces.
  double sent_bytes = 0;   ///< Payload that a rank sent a step; < 0 if the backend cannot say.
  std::string codec;       ///< How gradients travelled; empty: as they are.
  std::string checkpoint;  ///< Where the model was written; empty: nowhere.
  MemoryPeak memory;       ///< Of the rank that needed most; `resident`: the greatest of all ranks.
};

/// Several lines, each with its unit and, where one was used, its formula.
std::string format_summary(const TrainingSummary& summary);

/// The same for programs: one JSON object, its keys as in docs/training.md.
std::string summary_json(const TrainingSummary& summary);

}  // namespace gradwire
