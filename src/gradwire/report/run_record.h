#pragma once

#include <cstdint>
#include <filesystem>
#include <limits>
#include <string>
#include <string_view>
#include <vector>

#include "gradwire/base/error.h"
#include "gradwire/report/training_summary.h"
#include "gradwire/trace/memory_timeline.h"

namespace gradwire::report {

/// One step of a run. Times in seconds, on rank 0.
struct RunStep {
  std::int64_t step = 0;  ///< From 0, over all epochs.
  double loss = 0;        ///< Mean over the global batch; may be infinite.
  double compute = 0;     ///< T_s: the rest of the step.
  double exposed = 0;     ///< T_c: waiting for communication not hidden behind compute.
  double data = 0;        ///< Waiting for the next batch.
  /// The rate of the optimizer's first parameter group; NaN: unknown.
  double learning_rate = std::numeric_limits<double>::quiet_NaN();

  double seconds() const { return compute + exposed + data; }
};

/// An evaluation on the test data.
struct RunTest {
  std::int64_t steps = 0;  ///< Steps that the model had taken.
  double loss = 0;
  double accuracy = 0;  ///< 0 .. 1.
};

/// Record of one training run for `gradwire report`. `gradwire train` writes it to run.json in its
/// output folder; any program may write one.
struct RunRecord {
  static constexpr int kVersion = 1;
  static constexpr const char* kFileName = "run.json";

  std::string name;                   ///< Display name; made unique on a page.
  std::string strategy;               ///< "DDP x4", "ZeRO-3 x2", "control".
  std::string config;                 ///< Configuration as JSON text; empty: unknown.
  std::vector<std::string> hosts;     ///< Name of each rank's host; empty: unknown.
  TrainingSummary summary;            ///< Ranks, accuracy, medians of a step, bytes.
  std::vector<RunStep> steps;         ///< In order; a long run keeps a subset.
  std::int64_t every = 1;             ///< One of this many steps is in `steps`.
  std::vector<RunTest> tests;         ///< In order.
  std::vector<double> epoch_seconds;  ///< Complete epochs, without evaluation.
  MemoryTimeline memory;              ///< Memory of rank 0; no samples: not measured.
  std::int64_t peak_rank_bytes = 0;   ///< Maximum over all ranks; 0: not measured.
};

/// Returns the format of docs/report.md. A loss that is not finite is written as null and read as
/// NaN.
std::string run_record_json(const RunRecord& record);

/// Reads a record strictly. Error: invalid_argument, which names the key and what is expected.
Result<RunRecord> parse_run_record(std::string_view text);

/// Reads the output of summary_json(); ignores unknown keys. Errors as above.
Result<TrainingSummary> parse_summary(std::string_view text);

/// Returns the record of a run that continues another one: its steps and tests follow those of
/// `earlier` before its first step, and the summary counts the steps and the time of both, from
/// kept steps where `earlier` went on after the checkpoint.
RunRecord continued(const RunRecord& earlier, RunRecord record);

/// Writes `folder`/run.json, completely or not at all. Throws Exception(system).
void write_run_record(const RunRecord& record, const std::filesystem::path& folder);

}  // namespace gradwire::report
