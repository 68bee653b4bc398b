#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <iostream>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include <CLI/CLI.hpp>
#include <fmt/format.h>
#include <malloc.h>
#include <unistd.h>

#include "gradwire/base/clock.h"
#include "gradwire/base/cpu.h"
#include "gradwire/base/error.h"
#include "gradwire/base/file.h"
#include "gradwire/base/refuse.h"
#include "gradwire/bootstrap/job.h"
#include "gradwire/bootstrap/servers_job.h"
#include "gradwire/cli/command_line.h"
#include "gradwire/cli/commands.h"
#include "gradwire/cli/launch/hosts.h"
#include "gradwire/cli/launch/launch.h"
#include "gradwire/cli/launch/launch_arguments.h"
#include "gradwire/cli/worker_speeds.h"
#include "gradwire/host/group.h"
#include "gradwire/memory/memory_ledger.h"
#include "gradwire/memory/memory_tracker.h"
#include "gradwire/recipe/dry_run.h"
#include "gradwire/recipe/hogwild_run.h"
#include "gradwire/recipe/record_profile.h"
#include "gradwire/recipe/replay.h"
#include "gradwire/recipe/run_devices.h"
#include "gradwire/recipe/run_inside.h"
#include "gradwire/recipe/stop_request.h"
#include "gradwire/recipe/trainer.h"
#include "gradwire/torch/init.h"
#include "gradwire/torch/process_group.h"
#include "gradwire/trace/trace_session.h"
#include "gradwire/train/device_parallel/device_parallel.h"

namespace gradwire::cli {
namespace {

struct TrainOptions {
  std::string config;
  LaunchArguments launch;
  std::vector<std::string> settings;
  std::string output = ".";
  std::string data;
  std::string record_profile;
  std::string trace;
  std::string json;
  std::vector<std::string> slow;
  std::string replay;
  bool dry_run = false;
};

void declare_options(CLI::App& app, TrainOptions& options) {
  app.add_option("config", options.config,
                 "JSON file, on every host; docs/training.md describes its format");
  declare_launch_arguments(app, options.launch);
  declare_engine(app, options.launch);
  app.add_option("--set", options.settings, "key.sub=value: overrides the file; may be repeated")
      ->allow_extra_args(false);
  app.add_option("--output", options.output,
                 "folder for the checkpoint and for run.json, the input of gradwire report")
      ->capture_default_str();
  app.add_option("--data", options.data, "folder of the data set; the same as --set data.path=...");
  app.add_option("--record-profile", options.record_profile,
                 "file for the model's layers and their times, for gradwire bench step --profile");
  app.add_option("--trace", options.trace,
                 "file for a trace of all ranks, for Perfetto; a summary is printed at the end");
  app.add_option("--json", options.json, "file for the summary as JSON");
  declare_slow(app, options.slow,
               "for experiments, emulates slow machines by ranks that wait in each step");
  app.add_option("--replay", options.replay,
                 "file of a run with servers.log: repeats that run in this process, and says "
                 "whether it has the same bits");
  app.add_flag("--dry-run", options.dry_run,
               "prints the mesh, and the stages and the schedule of a pipeline, without training");
}

/// Returns the trace file; empty: none.
std::filesystem::path trace_file(const recipe::TrainConfig& config, const TrainOptions& options) {
  if (!options.trace.empty() || config.trace.empty()) return options.trace;
  return std::filesystem::path(options.output) / config.trace;
}

recipe::TrainConfig load(const TrainOptions& options) {
  auto config = recipe::load_train_config(options.config, options.settings);
  if (!options.data.empty()) {
    if (config.data.name == "click_through") {
      refuse("--data is incompatible with data.name \"click_through\", which is synthetic");
    }
    config.data.path = options.data;
  }
  return config;
}

std::filesystem::path output_folder(const TrainOptions& options) {
  return std::filesystem::absolute(options.output).lexically_normal();
}

/// Checks that outputs can be written, before hours of training. (TraceSession reserves its file
/// itself.)
void check_outputs(const recipe::TrainConfig& config, const TrainOptions& options) {
  const auto folder = output_folder(options);
  check_writable(folder / report::RunRecord::kFileName);
  if (!config.checkpoint.empty()) check_writable(folder / config.checkpoint);
  if (!config.servers.log.empty()) check_writable(folder / config.servers.log);
  if (!options.json.empty()) check_writable(options.json);
}

/// The configuration as JSON, with the data set by a path that is valid in every folder.
std::string whole_configuration(const TrainOptions& options) {
  std::vector<std::string> settings = options.settings;
  if (!options.data.empty()) {
    settings.push_back("data.path=" + std::filesystem::absolute(options.data).string());
  }
  return recipe::configuration_text(options.config, settings);
}

/// Returns true if a resumed run had no steps left, and would overwrite the results of the earlier
/// run.
bool has_ended_before(const report::TrainingSummary& summary, const std::filesystem::path& file) {
  return summary.steps == 0 && std::filesystem::is_regular_file(file);
}

void write_json(const report::TrainingSummary& summary, const std::string& path) {
  if (path.empty() || has_ended_before(summary, path)) return;
  write_file(path, report::summary_json(summary));
}

/// The record of a run, which continues that of the run whose checkpoint it resumes.
class RecordFile {
 public:
  /// `hosts`: the name of each rank's host.
  RecordFile(const recipe::TrainConfig& config, const TrainOptions& options,
             std::vector<std::string> hosts)
      : folder_(output_folder(options)), hosts_(std::move(hosts)) {
    name_ = (folder_.has_filename() ? folder_ : folder_.parent_path()).filename().string();
    config_ = recipe::configuration_text(options.config, options.settings);
    if (!config.resume.empty())
      read_earlier(config.resume == "auto" ? folder_.string() : config.resume);
  }

  /// Adds name, configuration, hosts and the earlier steps, and writes run.json.
  void write(report::RunRecord record) const {
    if (has_ended_before(record.summary, folder_ / report::RunRecord::kFileName)) return;
    if (earlier_) record = report::continued(*earlier_, std::move(record));
    record.name = name_;
    record.config = config_;
    record.hosts = hosts_;
    report::write_run_record(record, folder_);
  }

 private:
  /// `place`: a run's folder, its folder of checkpoints, or one of these.
  void read_earlier(std::filesystem::path place) {
    for (int levels = 0; levels < 3; ++levels, place = place.parent_path()) {
      const auto file = place / report::RunRecord::kFileName;
      if (!std::filesystem::is_regular_file(file)) continue;
      // The run resumes without an earlier record if another program has written this file.
      const auto text = read_file(file);
      auto read = text ? report::parse_run_record(*text) : tl::unexpected(text.error());
      if (read) earlier_ = std::move(*read);
      return;
    }
  }

  std::filesystem::path folder_;
  std::string name_, config_;
  std::vector<std::string> hosts_;
  std::optional<report::RunRecord> earlier_;
};

/// Allocates the units of ZeRO stage 3 by mmap, so that freed units are returned to the system.
/// glibc would raise its mmap threshold once such blocks are freed, keep their memory, and place
/// other blocks between.
void give_back_units([[maybe_unused]] const recipe::TrainConfig& config) {
#ifdef __GLIBC__
  constexpr int kOwnMapping = 4 << 20;
  const bool chosen = bootstrap::process_environment()("MALLOC_MMAP_THRESHOLD_").has_value();
  if (config.zero.stage == 3 && !chosen) ::mallopt(M_MMAP_THRESHOLD, kOwnMapping);
#endif
}

/// The process of one or more ranks.
struct TrainProcess {
  const recipe::TrainConfig& config;
  const TrainOptions& options;
  const Clock& clock;
  report::ProgressPrinter& progress;
  MemoryTracker* memory;  ///< May be null.
};

/// Trains on one rank, whose device is the process's `index`-th. Returns the exit status.
int train_on(const TrainProcess& process, const ProcessGroup& group, const torch::Device& device,
             int index) {
  const recipe::TrainConfig& config = process.config;
  const TrainOptions& options = process.options;
  MemoryTracker* const memory = index == 0 ? process.memory : nullptr;
  const RecordFile record(config, options, gather_texts(*group, this_host_name()));
  TraceSession session({.file = trace_file(config, options), .host = this_host_name()},
                       trace_peers(communicator_of(*group)), process.clock);
  if (memory != nullptr) {
    session.recorder()->observe([memory](std::int64_t step) { memory->ledger().sample(step); });
  }
  const auto end_trace = [&] {
    if (memory != nullptr)
      session.add_memory(memory->ledger().timeline(), memory->ledger().begin());
    try {
      if (auto trace = session.finish()) {
        trace->in_step = !config.servers.deals();
        std::cout << format_trace_summary(*trace) << std::flush;
      }
    } catch (const Exception& e) {
      // The run goes on without lost workers, but the traces of all ranks are gathered.
      if (!config.servers.deals()) throw;
      fmt::print(stderr, "gradwire train: no trace is written: {}\n", e.what());
    }
  };
  try {
    const auto result =
        recipe::train(config, {.group = group,
                               .device = device,
                               .clock = &process.clock,
                               .progress = &process.progress,
                               .output = options.output,
                               .configuration = whole_configuration(options),
                               .trace = session.recorder(),
                               .memory = memory,
                               .slow = slow_workers(options.slow),
                               .on_saved = [&](auto saved) { record.write(saved); },
                               .stops_on_signals = config.devices_per_process() == 1});
    if (result.concludes) {
      record.write(result.record);
      std::cout << report::format_summary(result.summary) << std::flush;
    }
    end_trace();
    if (result.concludes) write_json(result.summary, options.json);
    return 0;
  } catch (const recipe::Stopped& stopped) {
    // Caught while the group exists: destroyed by an exception, it would abort the other ranks.
    if (stopped.first()) fmt::print(stderr, "gradwire train: {}\n", stopped.what());
    end_trace();
    // MPI ends all ranks when one exits with a status other than 0: after the message, then.
    if (!config.servers.deals()) group->barrier()->wait();
    return 128 + stopped.signal();
  }
}

int train_as_process(const recipe::TrainConfig& config, const TrainOptions& options,
                     const bootstrap::Job& job) {
  int threads = recipe::threads_per_rank(usable_cores(), job.local_world_size);
  const bool chosen =
      bootstrap::process_environment()("OMP_NUM_THREADS").has_value();  // libtorch reads it.
  if (chosen) threads = std::min(threads, at::get_num_threads());
  at::set_num_threads(threads);
  give_back_units(config);
  if (const auto divided = bootstrap::servers_job(job); divided && divided->serves) {
    recipe::serve(config, init(job));
  }
  const SteadyClock clock;
  std::optional<MemoryTracker> memory;
  if (!trace_file(config, options).empty()) memory.emplace(clock);
  report::ProgressPrinter progress(std::cerr, ::isatty(STDERR_FILENO) == 1);
  if (job.rank == 0) check_outputs(config, options);
  const auto devices = recipe::devices_of(config);
  const auto group = recipe::group_with_inside(config, init(job));
  const int sharing = recipe::ranks_sharing_cores(*group, job.local_world_size);
  at::set_num_threads(std::min(threads, recipe::threads_per_rank(usable_cores(), sharing)));
  const int ranks = job.world_size * config.devices_per_process();
  if (job.rank == 0 && !options.record_profile.empty()) {
    workload::write_profile(record_profile(config, ranks, clock), options.record_profile);
  }
  const TrainProcess process{config, options, clock, progress, memory ? &*memory : nullptr};
  if (devices.size() == 1) return train_on(process, group, devices.front(), 0);
  const DeviceGroup together(group, devices);
  std::vector<int> statuses(devices.size());
  together.run([&](int index) {
    statuses[static_cast<std::size_t>(index)] =
        train_on(process, together.group(index), together.device(index), index);
  });
  return std::ranges::max(statuses);
}

/// Number of ranks that train.
int ranks_of(const TrainOptions& options, const bootstrap::Job& job,
             const recipe::TrainConfig& config) {
  const int devices = config.devices_per_process();
  if (options.launch.starts_ranks(job))
    return (ranks_to_start(options.launch) - config.servers.own_ranks()) * devices;
  const auto divided = bootstrap::servers_job(job);
  return (divided ? divided->workers : job.world_size) * devices;
}

/// Throws Exception(invalid_argument) if the configuration and the launcher have different numbers
/// of ranks that serve.
void check_servers(const recipe::TrainConfig& config, const TrainOptions& options,
                   const bootstrap::Job& job) {
  const int wanted = config.servers.own_ranks();
  if (options.launch.starts_ranks(job)) {
    if (wanted < ranks_to_start(options.launch)) return;
    refuse("servers.count is {} of {} ranks: at least one rank must work; give more ranks with -n",
           wanted, ranks_to_start(options.launch));
  }
  const auto divided = bootstrap::servers_job(job);
  const int started = divided ? divided->servers : 0;
  if (wanted == started) return;
  refuse(
      "the configuration has {} server ranks, and the job {}: start it with gradwire train -n, or "
      "gradwire run --servers {}, or set servers.place \"workers\"",
      wanted, started, wanted);
}

void check_slow(const TrainOptions& options, int ranks) {
  for (const auto& [rank, slow] : slow_workers(options.slow)) {
    if (rank >= ranks) refuse("--slow {}: ranks 0 to {} train", rank, ranks - 1);
    if (slow.factor < 1) {
      refuse("--slow {}:{:g}: a rank that waits is not faster; the factor must be at least 1", rank,
             slow.factor);
    }
  }
}

/// Throws Exception(invalid_argument) if threads that share the parameters cannot run so.
void check_hogwild(const recipe::TrainConfig& config, const TrainOptions& options, int ranks) {
  recipe::hogwild_threads(config, ranks);
  if (!options.trace.empty()) {
    refuse("--trace has one thread of each rank, and hogwild several; leave one of them out");
  }
  if (!options.slow.empty()) {
    refuse(
        "--slow is of ranks that wait in each step, which threads of hogwild do not; leave it out");
  }
}

/// Loads the configuration and checks it before ranks start.
recipe::TrainConfig checked(const TrainOptions& options, const bootstrap::Job& job) {
  check_fits(options.launch, job);
  recipe::TrainConfig config = load(options);
  check_servers(config, options, job);
  const int ranks = ranks_of(options, job, config);
  recipe::batch_size_per_replica(config, ranks);
  check_slow(options, ranks);
  if (config.hogwild.enabled) check_hogwild(config, options, ranks);
  return config;
}

std::string engine_in_environment() {
  return bootstrap::process_environment()("GRADWIRE_ENGINE").value_or("");
}

/// Takes the configuration's engine, unless --engine or GRADWIRE_ENGINE names one. Ranks inherit
/// it. Throws Exception(invalid_argument) for settings that MPI does not have.
void use_engine(const recipe::TrainConfig& config, bootstrap::Job& job) {
  if (!config.engine.empty() && engine_in_environment().empty()) {
    ::setenv("GRADWIRE_ENGINE", config.engine.c_str(), 1);
    job.engine = config.engine;
  }
  if (engine_in_environment() == "mpi" && config.servers.enabled)
    refuse("servers need gradwire's own engine, and the engine is mpi; leave one of them out");
}

/// Throws Exception(invalid_argument) for options that a replay takes from the run, or lacks.
void check_replay(const TrainOptions& options, const bootstrap::Job& job) {
  if (!options.config.empty() || !options.settings.empty()) {
    refuse("--replay has the configuration of its run: leave CONFIG and --set out");
  }
  const bool starts = options.launch.starts_ranks(job) && ranks_to_start(options.launch) > 1;
  if (starts || job.world_size > 1) {
    refuse("--replay repeats what all ranks did in one process: leave -n and --hosts out");
  }
  const bool records = !options.record_profile.empty() || !options.trace.empty();
  if (options.dry_run || records || !options.json.empty() || !options.slow.empty()) {
    refuse("--replay has no --dry-run, --record-profile, --trace, --json and --slow");
  }
}

int replay_run(const TrainOptions& options) {
  const SteadyClock clock;
  report::ProgressPrinter progress(std::cerr, ::isatty(STDERR_FILENO) == 1);
  const auto result = read_arguments([&] {
    return recipe::replay({.order = options.replay,
                           .output = output_folder(options),
                           .data = options.data,
                           .clock = &clock,
                           .progress = &progress});
  });
  std::cout << result.text << std::flush;
  if (result.difference.empty()) {
    fmt::print("all gradients and parameters have the bits of the run\n");
    return 0;
  }
  fmt::print(stderr, "gradwire train: the replay differs from the run: {}\n", result.difference);
  return 1;
}

}  // namespace

int train_command(int argc, char** argv) {
  TrainOptions options;
  CLI::App app("Trains a model described by a JSON file", "gradwire train");
  declare_options(app, options);
  const auto as_setting = [](std::string_view option) {
    return fmt::format("; keys of the configuration are set with --set {}=VALUE",
                       option.substr(option.find_first_not_of('-')));
  };
  if (const auto status = parse_command_line(app, argc, argv, as_setting)) return *status;
  if (!options.replay.empty()) {
    read_arguments([&] { return check_replay(options, bootstrap::Job::from_environment()), 0; });
    return replay_run(options);
  }
  if (options.config.empty()) {
    fmt::print(stderr,
               "gradwire train: no configuration given: gradwire train CONFIG.json -n 4 "
               "(docs/training.md describes CONFIG.json; examples/ has some)\n");
    return 2;
  }
  auto job = bootstrap::Job::from_environment();
  const auto config = read_arguments([&] {
    recipe::TrainConfig read = checked(options, job);
    use_engine(read, job);
    return read;
  });
  if (options.dry_run) {
    const int ranks = ranks_of(options, job, config);
    const auto text = read_arguments([&] { return recipe::dry_run(config, ranks); });
    if (job.rank == 0) {
      std::cout << text << (engine_in_environment() == "mpi" ? "engine: MPI\n" : "") << std::flush;
    }
    return 0;
  }
  if (!options.launch.starts_ranks(job)) return train_as_process(config, options, job);
  LaunchOptions launch = read_arguments([&] { return launch_options_of(options.launch); });
  launch.name = "gradwire train";
  launch.servers = config.servers.own_ranks();
  return run_self(std::vector<std::string>(argv, argv + argc), std::move(launch));
}

}  // namespace gradwire::cli
