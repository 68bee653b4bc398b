#include "gradwire/report/report_data.h"

#include <algorithm>
#include <cmath>
#include <iterator>
#include <map>

#include <nlohmann/json.hpp>

#include "gradwire/base/statistics.h"
#include "gradwire/report/federated_data.h"
#include "gradwire/report/page_json.h"

namespace gradwire::report {
namespace {

using Json = nlohmann::ordered_json;

constexpr std::size_t kCurvePoints = 500;
constexpr std::size_t kMemoryPoints = 600;

template <class Items, class Get>
Json list_of(const Items& items, Get get) {
  Json list = Json::array();
  for (const auto& item : items) list.push_back(get(item));
  return list;
}

Json curve_json(const RunRecord& run) {
  const auto curve = loss_curve(run.steps, kCurvePoints);
  if (curve.step.empty() && curve.not_finite == 0) return {};
  return {{"step", curve.step},
          {"loss", list_of(curve.loss, rounded)},
          {"learning_rate", list_of(curve.learning_rate, rounded)},
          {"not_finite", curve.not_finite}};
}

Json tests_json(const std::vector<RunTest>& tests) {
  if (tests.empty()) return {};
  return {{"step", list_of(tests, [](const RunTest& test) { return test.steps; })},
          {"loss", list_of(tests, [](const RunTest& test) { return rounded(test.loss); })},
          {"accuracy", list_of(tests, [](const RunTest& test) { return rounded(test.accuracy); })}};
}

Json samples_json(const std::vector<MemorySample>& samples) {
  if (samples.empty()) return {};
  Json bytes = Json::object();
  for (std::size_t i = 0; i < kMemoryCategories; ++i) {
    bytes[std::string(kMemoryCategoryNames[i])] =
        list_of(samples, [i](const MemorySample& sample) { return sample.bytes[i]; });
  }
  return {{"time_s", list_of(samples, [](const auto& s) { return rounded(s.seconds); })},
          {"step", list_of(samples, [](const MemorySample& s) { return s.step; })},
          {"bytes", std::move(bytes)}};
}

Json categories_json(const MemoryBytes& at_peak) {
  Json bytes = Json::object();
  for (std::size_t i = 0; i < kMemoryCategories; ++i) {
    bytes[std::string(kMemoryCategoryNames[i])] = at_peak[i];
  }
  return {{"total", total_bytes(at_peak)}, {"bytes", std::move(bytes)}};
}

/// The peak of the rank with the maximum; if only rank 0 was measured, of rank 0.
Json peak_json(const RunRecord& run) {
  if (run.summary.memory.bytes > 0) return categories_json(run.summary.memory.at_peak);
  if (run.memory.samples.empty()) return {};
  const auto total = [](const MemorySample& sample) { return total_bytes(sample.bytes); };
  return categories_json(std::ranges::max_element(run.memory.samples, {}, total)->bytes);
}

std::int64_t peak_bytes_of(const RunRecord& run) {
  return std::max({run.peak_rank_bytes, run.memory.peak_bytes, run.summary.memory.bytes});
}

Json staleness_json(const StalenessSummary& s) {
  const auto parts = [](const std::vector<StalenessPart>& all) {
    return list_of(all, [](const StalenessPart& part) {
      return Json{{"mean", rounded(part.mean)}, {"max", part.max}};
    });
  };
  const Json predicted = s.predicted ? Json{{"mean", rounded(s.predicted->mean)},
                                            {"p99", s.predicted->p99},
                                            {"late", rounded(s.predicted->late)}}
                                     : Json();
  return {{"mean", s.mean},
          {"p99", s.p99},
          {"max", s.max},
          {"rate", s.rate},
          {"late", s.late},
          {"busy", s.busy},
          {"by_worker", parts(s.by_worker)},
          {"by_unit", parts(s.by_unit)},
          {"predicted", predicted},
          {"lost_servers", s.lost_servers},
          {"lost_updates", s.lost_updates},
          {"lost_gradients", s.lost_gradients}};
}

Json summary_figures(const TrainingSummary& s) {
  // A run that was interrupted has not been tested.
  const auto tested = [&](double value) { return s.test_images > 0 ? rounded(value) : Json(); };
  return {{"ranks", s.ranks},
          {"steps", s.steps},
          {"test_accuracy", tested(s.test_accuracy)},
          {"test_loss", tested(s.test_loss)},
          {"images_per_second", rounded(s.images_per_second)},
          {"training_s", rounded(std::chrono::duration<double>(s.training).count())},
          {"compute_s", rounded(s.compute_seconds)},
          {"exposed_s", rounded(s.exposed_seconds)},
          {"data_s", rounded(s.data_seconds)},
          {"efficiency", rounded(scaling_efficiency(s.compute_seconds, s.exposed_seconds))},
          {"gradient_bytes", rounded(s.gradient_bytes)},
          {"sent_bytes", s.sent_bytes < 0 ? Json() : rounded(s.sent_bytes)},
          {"textbook_bytes", rounded(textbook_all_reduce_bytes(s.ranks, s.gradient_bytes))},
          {"staleness", s.staleness ? staleness_json(*s.staleness) : Json()}};
}

Json run_json(const ReportRun& item, const Bins& bins) {
  const RunRecord& run = item.record;
  std::vector<double> seconds;
  for (const auto& step : run.steps) seconds.push_back(step.seconds());
  const std::int64_t peak = peak_bytes_of(run);
  const std::int64_t resident = run.summary.memory.resident;
  return {{"name", run.name},
          {"strategy", run.strategy},
          {"source", item.source},
          {"hosts", run.hosts},
          {"config", run.config.empty() ? Json() : Json::parse(run.config)},
          {"every", run.every},
          {"summary", summary_figures(run.summary)},
          {"epoch_s", spread_json(run.epoch_seconds)},
          {"step_s", spread_json(seconds)},
          {"loss", curve_json(run)},
          {"tests", tests_json(run.tests)},
          {"histogram", histogram_json(seconds, bins)},
          {"peak_bytes", peak > 0 ? Json(peak) : Json()},
          {"resident_bytes", resident > 0 ? Json(resident) : Json()},
          {"memory", samples_json(thinned(run.memory.samples, kMemoryPoints))},
          {"memory_of_a_step", samples_json(busiest_step(run.memory))},
          {"memory_at_peak", peak_json(run)}};
}

/// Adds to each run the maximum difference of its losses from those of the first run that has any.
void add_differences(const std::vector<ReportRun>& runs, Json& entries) {
  const auto reference =
      std::ranges::find_if(runs, [](const ReportRun& run) { return !run.record.steps.empty(); });
  for (std::size_t i = 0; i < runs.size(); ++i) {
    const double difference =
        reference == runs.end() ? -1
                                : largest_difference(reference->record.steps, runs[i].record.steps);
    entries[i]["loss_difference"] = difference < 0 ? Json() : rounded(difference);
  }
}

Json row_json(const LadderRow& row) {
  return {{"label", label_of(row)},
          {"system", row.system},
          {"ranks", row.ranks},
          {"single_ms", rounded(row.single_ms)},
          {"step_ms", rounded(row.step_ms)},
          {"exposed_ms", rounded(row.exposed_ms)},
          {"eta", rounded(row.eta)},
          {"bound", row.bound > 0 ? rounded(row.bound) : Json()},
          {"bytes_per_step", row.bytes_per_step < 0 ? Json() : rounded(row.bytes_per_step)}};
}

}  // namespace

Json report_data(const ReportInputs& inputs, const std::string& title) {
  bool shared = false;
  const auto bins = step_time_bins(inputs.runs, shared);
  Json runs = Json::array();
  for (std::size_t i = 0; i < inputs.runs.size(); ++i) {
    runs.push_back(run_json(inputs.runs[i], bins[i]));
  }
  add_differences(inputs.runs, runs);
  return {{"title", title},
          {"categories", kMemoryCategoryNames},
          {"same_bins", shared},
          {"runs", std::move(runs)},
          {"ladders", list_of(inputs.ladders,
                              [](const ReportLadder& ladder) {
                                return Json{{"name", ladder.name},
                                            {"source", ladder.source},
                                            {"rows", list_of(ladder.rows, row_json)}};
                              })},
          {"federated", list_of(inputs.federated, federated_json)}};
}

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
    curve.learning_rate.push_back(steps[(begin + end) / 2].learning_rate);
  }
  return curve;
}

double largest_difference(const std::vector<RunStep>& a, const std::vector<RunStep>& b) {
  std::map<std::int64_t, double> loss_at;
  for (const auto& step : a) loss_at[step.step] = step.loss;
  double largest = -1;
  for (const auto& step : b) {
    const auto found = loss_at.find(step.step);
    if (found == loss_at.end()) continue;
    const double difference = std::abs(found->second - step.loss);
    if (std::isfinite(difference)) largest = std::max(largest, difference);
  }
  return largest;
}

std::vector<MemorySample> busiest_step(const MemoryTimeline& memory) {
  constexpr std::size_t kMinSamples = 8;
  std::map<std::int64_t, std::size_t> samples;
  for (const auto& sample : memory.samples) {
    if (sample.step >= 0) ++samples[sample.step];
  }
  std::int64_t busiest = -1;
  std::size_t max_samples = kMinSamples;
  for (const auto& [step, count] : samples) {
    if (count < max_samples) continue;
    busiest = step;
    max_samples = count;
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

}  // namespace gradwire::report
