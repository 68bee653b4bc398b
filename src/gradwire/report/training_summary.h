#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "gradwire/base/types.h"
#include "gradwire/trace/memory_timeline.h"

namespace gradwire::report {

/// Peak memory use, and its composition.
struct MemoryPeak {
  std::int64_t bytes = 0;  ///< Sum over categories; 0: not measured.
  MemoryBytes at_peak{};   ///< Each category at that moment; the sum is `bytes`.
  MemoryBytes max{};       ///< Each category's own maximum.
  /// Resident peak of the whole process (VmHWM), including libraries and memory outside tensors. 0:
  /// not measured.
  std::int64_t resident = 0;
};

/// Staleness of some of the gradients, in updates.
struct StalenessPart {
  double mean = 0;
  std::int64_t max = 0;
};

/// The planner's prediction for a run, from its workers' measured compute.
struct StalenessPrediction {
  double mean = 0;
  std::int64_t p99 = 0;
  double late = 0;  ///< Share of the gradients that are dropped.
};

/// The work of parameter servers: staleness of the gradients that they applied, in updates.
struct StalenessSummary {
  double mean = 0;
  std::int64_t p50 = 0, p99 = 0, max = 0;
  std::int64_t version = 0;                      ///< Updates of a unit, in all runs; the most.
  double rate = 1;                               ///< Mean factor on the learning rate.
  double late = 0;                               ///< Share of the gradients that were dropped.
  double busy = 0;                               ///< Share of the time in which servers computed.
  std::vector<StalenessPart> by_worker;          ///< Or by group; empty: not known.
  std::vector<StalenessPart> by_unit;            ///< Empty: not known.
  std::optional<StalenessPrediction> predicted;  ///< Null: not predicted.
  std::string advice;                            ///< A remedy; may be empty.
  /// servers::ServerReport::lost_servers and so on.
  std::int64_t lost_servers = 0, lost_updates = 0, lost_gradients = 0;
};

/// Threads that share the parameters, and what their updates without locks cost.
struct HogwildSummary {
  int threads = 1;
  std::int64_t updates = 0;  ///< Elements of parameters that were updated.
  std::int64_t sampled = 0;  ///< Elements of these that were examined.
  std::int64_t lost = 0;     ///< Those of the samples that overwrote another thread's update.

  /// Estimated number of updates that overwrote another one.
  double lost_updates() const;
};

/// The rows of an embedding table on servers.
struct RowsSummary {
  std::int64_t made = 0;   ///< Rows that were trained.
  std::int64_t bytes = 0;  ///< Their memory, on all servers.
  double mean_staleness = 0;
  std::int64_t max_staleness = 0;  ///< Steps.
  std::int64_t max_permits = 0;    ///< The largest number that one worker had.
  std::int64_t permits = 0;        ///< The number that it may have.
};

/// Result of a training run. Times and bytes of a step are medians over steps (bytes: the mean),
/// averaged over ranks. A rank that waits for slower ones counts that as communication.
struct TrainingSummary {
  int ranks = 1;
  std::int64_t steps = 0;
  double test_accuracy = 0;  ///< 0 .. 1.
  double test_loss = 0;
  std::int64_t test_images = 0;            ///< Images, or characters of a text.
  double images_per_second = 0;            ///< Samples, while training, over all ranks.
  std::int64_t characters_per_sample = 0;  ///< Those of a text; 0: it is none.
  std::string samples = "images";          ///< Their name, unless they are of a text.
  Duration training{};                     ///< Without evaluation.
  double compute_seconds = 0;              ///< T_s: a step without waiting for communication.
  double exposed_seconds = 0;  ///< T_c: waiting for communication not hidden behind compute.
  double data_seconds = 0;     ///< Waiting for the next batch; not part of T_s or T_c.
  double gradient_bytes = 0;   ///< G: all-reduced per step.
  double sent_bytes = 0;       ///< Payload per rank and step; < 0 if not counted by the backend.
  std::string codec;           ///< Gradient codec; empty: none.
  std::optional<StalenessSummary> staleness;  ///< With parameter servers.
  std::optional<HogwildSummary> hogwild;      ///< With threads that share the parameters.
  std::optional<RowsSummary> rows;            ///< With rows on servers.
  std::string checkpoint;                     ///< Path of the saved model; empty: none.
  MemoryPeak memory;  ///< Rank with the maximum; `resident`: maximum over ranks.
};

/// "3412 images/s", or of a text "218368 characters/s".
std::string throughput_text(double samples_per_second, const std::string& samples,
                            std::int64_t characters_per_sample);

/// "88.10 % of 10000 images (loss 0.3312)"; of a text with its perplexity.
std::string test_text(const TrainingSummary& summary);

/// Formats several lines, each with its unit and, where one is used, its formula.
std::string format_summary(const TrainingSummary& summary);

/// Returns the same as one JSON object, with the keys of docs/training.md.
std::string summary_json(const TrainingSummary& summary);

}  // namespace gradwire::report
