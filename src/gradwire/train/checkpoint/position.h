#pragma once

#include <cstdint>
#include <string>

namespace gradwire {

/// Progress of a run in its data, and the division of the data into steps.
struct RunPosition {
  std::int64_t steps = 0;       ///< Steps taken.
  std::int64_t batches = 1;     ///< Per epoch.
  std::int64_t batch_size = 1;  ///< Over all ranks.
  std::uint64_t seed = 0;       ///< Seed of the sample order.
};

/// Returns the position as JSON for a checkpoint: {"epoch": 1, "batch": 4, ...}.
std::string position_text(const RunPosition& position);

/// Position of a resumed run.
struct ResumedPosition {
  std::int64_t steps = 0;  ///< Steps counted as taken.
  std::string remark;      ///< Differences from the saved run; empty: none.
};

/// Returns where a run continues after one that saved `saved`. `now` describes its data;
/// `now.steps` is ignored. It continues at the same batch. If the batches differ, it continues in
/// the same epoch after as many samples, rounded down to a batch, so it may see up to one batch
/// twice. Throws Exception(invalid_argument) if `saved` has no position.
ResumedPosition resumed_position(const std::string& saved, const RunPosition& now);

}  // namespace gradwire
