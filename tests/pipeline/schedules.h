#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "gradwire/base/error.h"
#include "gradwire/pipeline/catalogue.h"

namespace gradwire::pipeline {

/// Compute times equal on all stages, F = I = W = 1, and transfers over a link for each pair.
inline PipelineOptions options_of(int ranks, int micro_batches, double transfer = 0) {
  return {.ranks = ranks,
          .micro_batches = micro_batches,
          .costs = {.transfer = transfer, .shares_ports = false}};
}

inline PipelineSchedule made(std::string_view name, const PipelineOptions& options) {
  return value_or_throw(make_pipeline(name, options));
}

}  // namespace gradwire::pipeline
