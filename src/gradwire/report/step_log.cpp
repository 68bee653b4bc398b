#include "gradwire/report/step_log.h"

namespace gradwire::report {

void StepLog::add(const RunStep& step) {
  if (seen_++ % every_ != 0) return;
  steps_.push_back(step);
  if (steps_.size() <= max_steps_) return;
  std::size_t kept = 0;
  for (std::size_t i = 0; i < steps_.size(); i += 2) steps_[kept++] = steps_[i];
  steps_.resize(kept);
  every_ *= 2;
}

}  // namespace gradwire::report
