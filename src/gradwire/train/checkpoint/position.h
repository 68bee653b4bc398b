#pragma once

#include <cstdint>
#include <string>

namespace gradwire {

/// Where a run is in its data, and how its steps divide them.
struct RunPosition {
  std::int64_t steps = 0;       ///< Taken so far.
  std::int64_t batches = 1;     ///< Of an epoch.
  std::int64_t batch_size = 1;  ///< Over all ranks.
  std::uint64_t seed = 0;       ///< Of the order of samples.
};

/// As JSON, for a checkpoint: {"epoch": 1, "batch": 4, ...}.
std::string position_text(const RunPosition& position);

/// Where a run goes on.
struct ResumedPosition {
  std::int64_t steps = 0;  ///< That it counts as taken.
  std::string remark;      ///< What is not as it was; empty: all is.
};

/// What a run that divides its data as `now` does (its `steps` count for nothing) goes on from,
/// after one that saved `saved`: the same batch, or with other batches the same epoch, after as
/// many samples or up to one batch fewer, which it then sees twice. Throws
/// Exception(invalid_argument) if `saved` says nothing.
ResumedPosition resumed_position(const std::string& saved, const RunPosition& now);

}  // namespace gradwire
