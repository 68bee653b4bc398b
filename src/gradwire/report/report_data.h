#pragma once

#include <cstddef>
#include <string>
#include <vector>

#include <nlohmann/json_fwd.hpp>

#include "gradwire/report/histogram.h"
#include "gradwire/report/report_inputs.h"

namespace gradwire::report {

/// Returns the page's data. Every figure of the page is computed here; its script only draws.
/// docs/report.md describes each. Pure.
nlohmann::ordered_json report_data(const ReportInputs& inputs, const std::string& title);

/// A curve of at most `max_points` points: steps are divided into that many intervals, each shown
/// as its mean loss at its middle step, with one of its learning rates. Losses that are not finite
/// are excluded and counted.
struct LossCurve {
  std::vector<double> step;
  std::vector<double> loss;
  std::vector<double> learning_rate;  ///< NaN: unknown.
  std::size_t not_finite = 0;
};
LossCurve loss_curve(const std::vector<RunStep>& steps, std::size_t max_points);

/// Returns the maximum difference of two runs' losses at the same step; < 0 if they share no step.
double largest_difference(const std::vector<RunStep>& a, const std::vector<RunStep>& b);

/// Returns the samples of the step with the most samples, the later of equal ones. Returns none if
/// no step has 8, the minimum that shows how memory changes within a step.
std::vector<MemorySample> busiest_step(const MemoryTimeline& memory);

/// Returns bins for each run's step times. If the medians lie within a factor of 4, all runs share
/// bins, so that their histograms can be compared; otherwise each run has its own. Runs without
/// steps get arbitrary bins. `shared`: set to true if the bins are shared.
std::vector<Bins> step_time_bins(const std::vector<ReportRun>& runs, bool& shared);

}  // namespace gradwire::report
