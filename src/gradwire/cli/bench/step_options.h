#pragma once

#include <string>
#include <vector>

#include <CLI/CLI.hpp>

#include "gradwire/base/units.h"
#include "gradwire/bootstrap/job.h"
#include "gradwire/cli/launch/launch_arguments.h"
#include "gradwire/emulation/step_measurement.h"
#include "gradwire/step/bucket_plan.h"

namespace gradwire::cli {

/// The command line of `gradwire bench step`, unparsed.
struct StepOptions {
  std::string profile = "resnet50";
  double compute_ms = 0;  ///< 0: as in the profile.
  std::vector<std::string> codecs{"none"};
  std::vector<int> accumulate{1};
  std::vector<int> local_steps{1};
  int fragments = 1, overlap_steps = 0;  ///< For all cases with local steps.
  std::vector<std::string> overlaps{"full"};
  std::vector<int> zero_stages{0};
  int prefetch = 2;
  bool ladder = false;
  std::vector<int> servers{0};
  std::vector<std::string> modes{"sync"};
  std::string place = "own";
  double use = 1;
  std::vector<std::string> slow;
  std::string spread = "none";
  int steps = 0;
  double seconds = 10;
  int warmup = 3;

  std::string bucket = format_bytes(step::kBucketBytes),
              first_bucket = format_bytes(step::kFirstBucketBytes),
              last_bucket = format_bytes(step::kLastBucketBytes), partition = "0";
  std::size_t codec_min_elements = step::kCodecMinElements;
  std::string piece = "4M";

  LaunchArguments launch;

  std::string json, plot, limit, trace;
  std::vector<std::string> compare;
  int rounds = 3;
  std::string python = "python3";
};

/// Adds the options to a command line parser; `options` must outlive it. The default of --python is
/// default_python() of `environment`.
void declare(CLI::App& app, StepOptions& options, const bootstrap::Environment& environment);

/// Returns the cases to measure, in order: every combination of the lists in the options, or the
/// cases of --ladder. Throws Exception(invalid_argument) for an unknown name, and lists the known
/// ones.
std::vector<emulation::StepCase> step_cases(const StepOptions& options);

/// Returns how to measure the cases. `profile` provides the compute time if --compute-ms is not
/// given. Throws Exception(invalid_argument).
emulation::StepMeasurementOptions measurement_options(const StepOptions& options,
                                                      const workload::LayerProfile& profile);

/// Returns the rate of --limit in bytes per second; 0: no limit. Throws
/// Exception(invalid_argument).
double limit_of(const StepOptions& options);

}  // namespace gradwire::cli
