#include "gradwire/train/step_meter.h"

#include <algorithm>
#include <chrono>

#include "gradwire/report/statistics.h"

namespace gradwire {
namespace {

double seconds(Duration duration) {
  return std::chrono::duration<double>(duration).count();
}

}  // namespace

void StepMeter::begin(Time now, const ReducerStats& stats, double sent) {
  begin_ = now;
  stats_at_begin_ = stats;
  sent_at_begin_ = sent;
}

void StepMeter::end(Time now, const ReducerStats& stats, double sent) {
  const auto step = now - begin_;
  const auto waited = stats.exposed - stats_at_begin_.exposed;
  compute_.push_back(seconds(step - waited));
  exposed_.push_back(seconds(waited));
  total_ += step;
  waited_ += waited;
  gradient_bytes_ += static_cast<double>(stats.bytes - stats_at_begin_.bytes);
  sent_bytes_ = sent < 0 ? -1 : sent_bytes_ + sent - sent_at_begin_;
}

double StepMeter::communication_share() const {
  return total_ > Duration{} ? seconds(waited_) / seconds(total_) : 0;
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
double StepMeter::gradient_bytes() const {
  return per_step(gradient_bytes_);
}
double StepMeter::sent_bytes() const {
  return sent_bytes_ < 0 ? -1 : per_step(sent_bytes_);
}

}  // namespace gradwire
