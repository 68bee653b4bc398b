#include "gradwire/recipe/run_recorder.h"

#include <algorithm>
#include <chrono>
#include <cmath>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "gradwire/base/clock.h"
#include "gradwire/base/statistics.h"

namespace gradwire::recipe {

void StepMeter::begin(Time now, const step::StepStats& stats, double sent) {
  begin_ = data_end_ = now;
  stats_at_begin_ = stats;
  if (compute_.empty()) sent_at_first_ = sent;
}

void StepMeter::end(Time now, const step::StepStats& stats, double sent) {
  const auto step = now - begin_;
  const auto waited = stats.exposed - stats_at_begin_.exposed;
  const auto for_data = data_end_ - begin_;
  compute_.push_back(seconds(step - waited - for_data));
  data_.push_back(seconds(for_data));
  exposed_.push_back(seconds(waited));
  total_ += step;
  waited_ += waited;
  gradient_bytes_ += static_cast<double>(stats.bytes - stats_at_begin_.bytes);
  update_sent(sent);
}

void StepMeter::end_idle(Time now) {
  total_ += now - begin_;
  waited_ += now - begin_;
}

void StepMeter::update_sent(double sent) {
  sent_bytes_ = sent < 0 ? -1 : sent - sent_at_first_;
}

Duration StepMeter::time_of(std::int64_t steps) const {
  // In floating point: days times steps overflow 64-bit nanoseconds.
  const std::chrono::duration<double> step = total_ / static_cast<double>(this->steps());
  return std::chrono::duration_cast<Duration>(step * steps);
}

double StepMeter::communication_share() const {
  return total_ > Duration{} ? seconds(waited_) / seconds(total_) : 0;
}

servers::Pace StepMeter::pace(std::int64_t pushes) const {
  if (steps() < 2 || pushes == 0) return {};
  const auto count = static_cast<double>(steps() - 1);
  double sum = 0, squares = 0;
  for (std::size_t step = 1; step < compute_.size(); ++step) sum += compute_[step];
  const double mean = sum / count;
  for (std::size_t step = 1; step < compute_.size(); ++step) {
    squares += (compute_[step] - mean) * (compute_[step] - mean);
  }
  // Steps of one push, with independent times.
  const double together = static_cast<double>(steps()) / static_cast<double>(pushes);
  const auto duration = [](double value) {
    return std::chrono::duration_cast<Duration>(std::chrono::duration<double>(value));
  };
  return {.mean = duration(std::max(0.0, together * mean)),
          .deviation = duration(std::sqrt(together * squares / count))};
}

double StepMeter::per_step(double total) const {
  return compute_.empty() ? 0 : total / static_cast<double>(compute_.size());
}

double StepMeter::compute_seconds() const {
  return median(compute_);
}
double StepMeter::exposed_seconds() const {
  return median(exposed_);
}
double StepMeter::data_seconds() const {
  return median(data_);
}
double StepMeter::gradient_bytes() const {
  return per_step(gradient_bytes_);
}
double StepMeter::sent_bytes() const {
  return sent_bytes_ < 0 ? -1 : per_step(sent_bytes_);
}

void RunRecorder::end_epoch(Time now, bool whole) {
  if (whole) epochs_.push_back(std::chrono::duration<double>(now - begin_).count());
}

void RunRecorder::step(std::int64_t step, double loss, double learning_rate,
                       const StepTimes& times) {
  log_.add({.step = step,
            .loss = loss,
            .compute = times.compute,
            .exposed = times.exposed,
            .data = times.data,
            .learning_rate = learning_rate});
}

report::RunRecord RunRecorder::record(const TrainConfig& config,
                                      const report::TrainingSummary& summary) const {
  return {.strategy = strategy_of(config, summary.ranks),
          .summary = summary,
          .steps = log_.steps(),
          .every = log_.every(),
          .tests = tests_,
          .epoch_seconds = epochs_};
}

namespace {

/// "pipeline x4, tensor x2, DDP x2".
std::string mesh_strategy_of(const TrainConfig& config, int ranks) {
  std::vector<std::string> axes;
  const auto add = [&](std::string_view axis, int degree) {
    if (degree > 1) axes.push_back(fmt::format("{} x{}", axis, degree));
  };
  add("pipeline", config.mesh.pipeline);
  add("tensor", config.mesh.tensor);
  add("spatial", config.mesh.spatial);
  add(config.zero.stage > 0 ? fmt::format("ZeRO-{}", config.zero.stage) : "DDP",
      replicas_of(config, ranks));
  return fmt::format("{}", fmt::join(axes, ", "));
}

}  // namespace

std::string strategy_of(const TrainConfig& config, int ranks) {
  if (config.servers.rows.enabled) {
    const std::int64_t count = config.servers.count > 0 ? config.servers.count : ranks;
    return fmt::format("data parallel x{}, rows on {} servers, staleness {}", ranks, count,
                       config.servers.rows.staleness);
  }
  if (config.servers.enabled) {
    const int servers = config.servers.count > 0 ? static_cast<int>(config.servers.count) : ranks;
    const std::int64_t groups = config.servers.groups;
    const bool has_units = !config.servers.units.empty();
    return fmt::format("{} server{}, {}{} x{}{}{}", servers, servers == 1 ? "" : "s",
                       config.servers.mode, config.local_steps.enabled ? " local steps" : "", ranks,
                       groups > 0 ? fmt::format(" in {} groups", groups) : "",
                       has_units ? " with asynchronous units" : "");
  }
  if (config.hogwild.enabled) {
    return config.hogwild.threads == 0 ? "Hogwild"
                                       : fmt::format("Hogwild x{}", config.hogwild.threads);
  }
  if (ranks == 1) return "1 rank";
  if (config.uses_pipeline()) return mesh_strategy_of(config, ranks);
  if (config.zero.stage > 0) return fmt::format("ZeRO-{} x{}", config.zero.stage, ranks);
  return fmt::format("{} x{}", config.local_steps.enabled ? "local SGD" : "DDP", ranks);
}

}  // namespace gradwire::recipe
