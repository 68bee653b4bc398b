#pragma once

#include <cstddef>
#include <string>
#include <vector>

#include <nlohmann/json_fwd.hpp>

#include "gradwire/report/histogram.h"
#include "gradwire/report/report_inputs.h"

namespace gradwire {

/// What the page shows, made of what runs left: every figure of the page is computed here, its
/// script only draws them. docs/report.md says what each is. Pure.
nlohmann::ordered_json report_data(const ReportInputs& inputs, const std::string& title);

/// A curve of at most `most` points: of each of as many stretches of steps the mean loss, at its
/// middle step. Losses that are not finite are left out and counted.
struct LossCurve {
  std::vector<double> step;
  std::vector<double> loss;
  std::size_t not_finite = 0;
};
LossCurve loss_curve(const std::vector<RunStep>& steps, std::size_t most);

/// The largest difference of two runs' losses at the same step; < 0 if they share none.
double largest_difference(const std::vector<RunStep>& a, const std::vector<RunStep>& b);

/// The samples of the step that has the most, the later of several; none if there is no step with
/// 8, which is the least that shows how memory rises and falls in it.
std::vector<MemorySample> busiest_step(const MemoryTimeline& memory);

/// Bins for each run's step times: the same for all, if the medians lie within a factor of 4, so
/// that the histograms can be compared by eye; otherwise each run's own. Runs without steps get
/// any. `shared`: which of the two.
std::vector<Bins> step_time_bins(const std::vector<ReportRun>& runs, bool& shared);

}  // namespace gradwire
