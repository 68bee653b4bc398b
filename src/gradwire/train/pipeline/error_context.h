#pragma once

#include <cstdint>
#include <string>

#include <fmt/format.h>

#include "gradwire/base/error.h"
#include "gradwire/pipeline/pipeline_schedule.h"

namespace gradwire {

/// Runs `action`; puts `what` in front of the message of an Exception.
template <class Action>
void with_context(const std::string& what, const Action& action) {
  try {
    action();
  } catch (const Exception& e) {
    throw Exception(e.kind(), fmt::format("{}: {}", what, e.what()));
  }
}

/// The context of a stage's update.
inline std::string update_of(pipeline::Stage stage, std::int64_t step) {
  return fmt::format("step {}, the update of stage {}", step, stage);
}

}  // namespace gradwire
