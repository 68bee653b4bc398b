#include "gradwire/plan/check/phase_check.h"

#include <array>
#include <cmath>

#include <fmt/format.h>

namespace gradwire::plan {
namespace {

struct Phase {
  std::string_view name;
  double StepPhases::*member;
  bool is_part;  ///< Part of the step: the parts add up to it.
};

constexpr std::array<Phase, 9> kPhases{{
    {"data", &StepPhases::data, true},
    {"forward", &StepPhases::forward, true},
    {"backward", &StepPhases::backward, true},
    {"update", &StepPhases::update, true},
    {"other", &StepPhases::other, true},
    {"compute", &StepPhases::compute, false},
    {"communication", &StepPhases::communication, false},
    {"exposed", &StepPhases::exposed, true},
    {"step", &StepPhases::step, false},
}};

/// Errors below this share of the step are not reported.
constexpr double kGood = 0.03;

bool is_part(std::string_view name, bool parts_known) {
  for (const Phase& phase : kPhases) {
    if (phase.name == name) return phase.is_part || (!parts_known && name == "compute");
  }
  return false;
}

/// Returns the part of the step with the largest error, or null.
const PhaseCheck* worst_of(const std::vector<PhaseCheck>& checks) {
  bool parts_known = false;
  for (const PhaseCheck& check : checks) parts_known = parts_known || check.phase == "forward";
  const PhaseCheck* worst = nullptr;
  for (const PhaseCheck& check : checks) {
    if (!is_part(check.phase, parts_known)) continue;
    if (worst == nullptr || std::abs(check.share_of(1)) > std::abs(worst->share_of(1)))
      worst = &check;
  }
  return worst;
}

std::string sentence(const std::vector<PhaseCheck>& checks) {
  if (checks.empty() || checks.back().phase != "step") return "The run has no complete steps.\n";
  const PhaseCheck& step = checks.back();
  const double error = step.predicted / step.measured - 1;
  std::string text = fmt::format("The step takes {:.2f} ms, predicted {:.2f} ms: {:+.1f} %",
                                 1e3 * step.measured, 1e3 * step.predicted, 100 * error);
  const PhaseCheck* worst = worst_of(checks);
  if (worst == nullptr || std::abs(worst->share_of(step.measured)) < kGood) return text + ".\n";
  return text + fmt::format("; the largest error is in {}, predicted {:.2f} ms {}.\n", worst->phase,
                            1e3 * std::abs(worst->predicted - worst->measured),
                            worst->predicted > worst->measured ? "too long" : "too short");
}

}  // namespace

std::vector<PhaseCheck> check_phases(const StepPhases& predicted, const StepPhases& measured) {
  std::vector<PhaseCheck> checks;
  for (const Phase& phase : kPhases) {
    const double p = predicted.*phase.member, m = measured.*phase.member;
    if (p >= 0 && m >= 0) checks.push_back({phase.name, p, m});
  }
  return checks;
}

double step_error(const std::vector<PhaseCheck>& checks) {
  if (checks.empty() || checks.back().phase != "step") return -1;
  return std::abs(checks.back().predicted / checks.back().measured - 1);
}

std::string format_checks(const std::vector<PhaseCheck>& checks) {
  std::string text =
      fmt::format("{:14} {:>13} {:>13} {:>9}\n", "phase", "predicted, ms", "measured, ms", "error");
  for (const PhaseCheck& check : checks) {
    const std::string error =
        check.measured > 0 ? fmt::format("{:+.1f} %", 100 * (check.predicted / check.measured - 1))
                           : "";
    text += fmt::format("{:14} {:>13.2f} {:>13.2f} {:>9}\n", check.phase, 1e3 * check.predicted,
                        1e3 * check.measured, error);
  }
  return text + sentence(checks);
}

}  // namespace gradwire::plan
