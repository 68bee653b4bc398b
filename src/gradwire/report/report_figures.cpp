#include <algorithm>
#include <cmath>
#include <iterator>
#include <map>

#include "gradwire/base/statistics.h"
#include "gradwire/report/report_data.h"
#include "gradwire/report/spread.h"

namespace gradwire {
namespace {

constexpr std::size_t kBins = 40;
constexpr double kComparable = 4;  ///< Runs share bins if their medians lie within this factor.

std::vector<double> seconds_of(const RunRecord& run) {
  std::vector<double> seconds;
  for (const auto& step : run.steps) seconds.push_back(step.seconds());
  return seconds;
}

}  // namespace

LossCurve loss_curve(const std::vector<RunStep>& steps, std::size_t max_points) {
  LossCurve curve;
  const std::size_t stretches = std::min(max_points, steps.size());
  for (std::size_t i = 0; i < stretches; ++i) {
    const std::size_t begin = i * steps.size() / stretches;
    const std::size_t end = (i + 1) * steps.size() / stretches;
    double sum = 0;
    std::size_t finite = 0;
    for (std::size_t j = begin; j < end; ++j) {
      if (!std::isfinite(steps[j].loss)) continue;
      sum += steps[j].loss;
      ++finite;
    }
    curve.not_finite += end - begin - finite;
    if (finite == 0) continue;
    curve.step.push_back(static_cast<double>(steps[begin].step + steps[end - 1].step) / 2);
    curve.loss.push_back(sum / static_cast<double>(finite));
  }
  return curve;
}

double largest_difference(const std::vector<RunStep>& a, const std::vector<RunStep>& b) {
  std::map<std::int64_t, double> loss_at;
  for (const auto& step : a) loss_at[step.step] = step.loss;
  double most = -1;
  for (const auto& step : b) {
    const auto found = loss_at.find(step.step);
    if (found == loss_at.end()) continue;
    const double difference = std::abs(found->second - step.loss);
    if (std::isfinite(difference)) most = std::max(most, difference);
  }
  return most;
}

std::vector<MemorySample> busiest_step(const MemoryTimeline& memory) {
  constexpr std::size_t kMinSamples = 8;
  std::map<std::int64_t, std::size_t> samples;
  for (const auto& sample : memory.samples) {
    if (sample.step >= 0) ++samples[sample.step];
  }
  std::int64_t busiest = -1;
  std::size_t most = kMinSamples;
  for (const auto& [step, count] : samples) {
    if (count < most) continue;
    busiest = step;
    most = count;
  }
  std::vector<MemorySample> kept;
  std::ranges::copy_if(
      memory.samples, std::back_inserter(kept),
      [busiest](const MemorySample& sample) { return busiest >= 0 && sample.step == busiest; });
  return kept;
}

std::vector<Bins> step_time_bins(const std::vector<ReportRun>& runs, bool& shared) {
  std::vector<Bins> bins;
  std::vector<double> medians, borders;
  for (const auto& run : runs) {
    const auto seconds = seconds_of(run.record);
    bins.push_back(seconds.empty() ? Bins{} : bins_for(seconds, kBins));
    if (seconds.empty()) continue;
    medians.push_back(median(seconds));
    borders.push_back(bins.back().low);
    borders.push_back(bins.back().high);
  }
  shared = !medians.empty() &&
           std::ranges::max(medians) <= kComparable * std::max(std::ranges::min(medians), 1e-12);
  if (!shared) return bins;
  const auto [low, high] = std::ranges::minmax(borders);
  return std::vector<Bins>(runs.size(), bins_between(low, high, kBins));
}

}  // namespace gradwire
