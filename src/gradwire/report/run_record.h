#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <string_view>
#include <vector>

#include "gradwire/base/error.h"
#include "gradwire/report/memory_timeline.h"
#include "gradwire/report/training_summary.h"

namespace gradwire {

/// One step of a run. Times in seconds, of rank 0.
struct RunStep {
  std::int64_t step = 0;  ///< From 0, over all epochs.
  double loss = 0;        ///< The mean over the batch, all ranks' parts of it; may be infinite.
  double compute = 0;     ///< T_s: neither of the next two.
  double exposed = 0;     ///< T_c: waiting for communication that compute did not hide.
  double data = 0;        ///< Waiting for the next batch.

  double seconds() const { return compute + exposed + data; }
};

/// What one training run leaves for `gradwire report`. `gradwire train` writes it as run.json into
/// its output folder; anybody may, from any program.
struct RunRecord {
  static constexpr int kVersion = 1;
  static constexpr const char* kFileName = "run.json";

  std::string name;                   ///< What readers call it: unique on a page, or made so there.
  std::string strategy;               ///< "DDP x4", "ZeRO-3 x2", "control".
  std::string config;                 ///< The configuration, as JSON text; empty: unknown.
  TrainingSummary summary;            ///< Ranks, accuracy, medians of a step, bytes.
  std::vector<RunStep> steps;         ///< In order; not all of them in a long run.
  std::int64_t every = 1;             ///< Every how many steps one is in `steps`.
  std::vector<double> epoch_seconds;  ///< Whole epochs, without evaluation.
  MemoryTimeline memory;              ///< Of rank 0; no samples: not measured.
  std::int64_t peak_rank_bytes = 0;   ///< The largest peak of all ranks; 0: not measured.
};

/// As docs/report.md describes it. A loss that is not finite becomes null, and is read as NaN.
std::string run_record_json(const RunRecord& record);

/// Reads one strictly. Errors: invalid_argument, which names the key and what is right.
Result<RunRecord> parse_run_record(std::string_view text);

/// Reads what summary_json() wrote; further keys may be there. Errors as above.
Result<TrainingSummary> parse_summary(std::string_view text);

/// Writes `folder`/run.json, whole or not at all. Throws Exception(system).
void write_run_record(const RunRecord& record, const std::filesystem::path& folder);

}  // namespace gradwire
