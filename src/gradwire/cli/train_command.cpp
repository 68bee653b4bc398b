#include <iostream>
#include <string>
#include <vector>

#include <CLI/CLI.hpp>
#include <unistd.h>

#include "gradwire/base/clock.h"
#include "gradwire/base/cores.h"
#include "gradwire/cli/command_line.h"
#include "gradwire/cli/commands.h"
#include "gradwire/cli/launch/plan.h"
#include "gradwire/cli/launch/run_self.h"
#include "gradwire/comm/job.h"
#include "gradwire/torch/init.h"
#include "gradwire/train/trainer.h"

namespace gradwire {
namespace {

struct TrainOptions {
  std::string config;
  int ranks = 0;
  std::vector<std::string> settings;
  std::string output = ".";
  std::string data;
};

void describe(CLI::App& app, TrainOptions& options) {
  app.add_option("config", options.config, "JSON file; docs/training.md says what it may hold")
      ->required();
  app.add_option("-n,--ranks", options.ranks,
                 "start this many ranks here; without it, be a rank of the job that started us")
      ->check(CLI::Range(1, kMaxRanks));
  app.add_option("--set", options.settings, "key.sub=value: goes before what the file says")
      ->allow_extra_args(false);
  app.add_option("--output", options.output, "folder for the checkpoint")->capture_default_str();
  app.add_option("--data", options.data, "folder of the data set; the same as --set data.path=...");
}

TrainConfig load(const TrainOptions& options) {
  auto config = load_train_config(options.config, options.settings);
  if (!options.data.empty()) config.data.path = options.data;
  return config;
}

int train_as_rank(const TrainConfig& config, const TrainOptions& options, const Job& job) {
  at::set_num_threads(threads_per_rank(usable_cores(), job.local_world_size));
  const SteadyClock clock;
  ProgressPrinter progress(std::cerr, ::isatty(STDERR_FILENO) == 1);
  const auto result = train(config, {.group = init(job),
                                     .clock = &clock,
                                     .progress = job.rank == 0 ? &progress : nullptr,
                                     .output = options.output});
  if (job.rank == 0) std::cout << format_summary(result.summary) << std::flush;
  return 0;
}

}  // namespace

int train_command(int argc, char** argv) {
  TrainOptions options;
  CLI::App app("Trains a model as a JSON file says", "gradwire train");
  describe(app, options);
  if (const auto status = parse_command_line(app, argc, argv)) return *status;
  const auto job = Job::from_environment();
  const auto config = load(options);  // Refused before ranks start.
  const bool launches = options.ranks > 0 && job.launcher == "none";
  batch_size_per_rank(config, launches ? options.ranks : job.world_size);
  if (launches) {
    return run_self(std::vector<std::string>(argv, argv + argc), options.ranks, "gradwire train");
  }
  return train_as_rank(config, options, job);
}

}  // namespace gradwire
