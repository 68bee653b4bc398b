#pragma once

#include <string>

#include "gradwire/pipeline/simulation.h"

namespace gradwire::pipeline {

/// Draws the ranks' computations over time for terminals: one line per rank, one column per unit of
/// time (the shortest computation, unless lines would be longer than `columns`).
std::string draw_text(const PipelineSchedule& schedule, const Timeline& timeline,
                      int columns = 160);

/// Draws the ranks' computations over time as a standalone SVG, without scripts, fonts or images:
/// one row per rank, one colored box per computation, labelled with its micro-batch where that has
/// room. A box's title has its name and times.
std::string draw_svg(const PipelineSchedule& schedule, const Timeline& timeline);

}  // namespace gradwire::pipeline
