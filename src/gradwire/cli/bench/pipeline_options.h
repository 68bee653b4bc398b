#pragma once

#include <string>
#include <vector>

#include <CLI/CLI.hpp>

#include "gradwire/bootstrap/job.h"
#include "gradwire/cli/launch/launch_arguments.h"
#include "gradwire/emulation/emulated_pipeline.h"

namespace gradwire::cli {

/// The command line of `gradwire bench pipeline`, unparsed.
struct PipelineBenchOptions {
  int stages = 0;  ///< 0: as many as ranks.
  int micro_batches = 16;
  std::vector<std::string> schedules{"gpipe", "1f1b", "zero_bubble_h1", "zero_bubble"};
  double forward_ms = 20, input_ms = 20, weight_ms = 20;
  std::string message = "1M";
  bool barrier = false;
  int replicas = 1;
  std::string gradients = "32M";
  bool each_micro_batch = false, equal_priority = false;
  int steps = 10;
  int warmup = 3;

  LaunchArguments launch;

  std::string json;
  std::vector<std::string> compare;
  int rounds = 3;
  std::string python = "python3";
};

/// Adds the options to a command line parser; `options` must outlive it. The default of --python is
/// default_python() of `environment`.
void declare(CLI::App& app, PipelineBenchOptions& options,
             const bootstrap::Environment& environment);

/// Returns how to measure; the group of the replicas is left to the caller. Throws
/// Exception(invalid_argument).
emulation::PipelineMeasurementOptions measurement_options(const PipelineBenchOptions& options);

/// Generates the schedule `name` for a network with these transfers. Throws
/// Exception(invalid_argument).
pipeline::PipelineSchedule schedule_named(const std::string& name,
                                          const PipelineBenchOptions& options, int ranks,
                                          const emulation::TransferTime& transfer);

}  // namespace gradwire::cli
