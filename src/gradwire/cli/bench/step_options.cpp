#include "gradwire/cli/bench/step_options.h"

#include <algorithm>
#include <string_view>

#include "gradwire/base/refuse.h"
#include "gradwire/base/suggest.h"
#include "gradwire/cli/bench/bench_options.h"
#include "gradwire/cli/worker_speeds.h"
#include "gradwire/codec/catalogue.h"
#include "gradwire/workload/profiles.h"

namespace gradwire::cli {
namespace {

void declare_cases(CLI::App& app, StepOptions& options) {
  app.add_option("--profile", options.profile,
                 "model: resnet50, resnet101, vit_s, vit_b, gpt2, uniform:LAYERSxBYTES, or a file "
                 "of gradwire train --record-profile")
      ->capture_default_str();
  app.add_option("--compute-ms", options.compute_ms,
                 "time of a forward and backward pass; default: as recorded in the profile")
      ->check(CLI::Range(0.001, 3.6e6));
  app.add_option("--codec", options.codecs,
                 "gradient compression: none, bf16, int8, int4, one_bit, top_k:0.01, power_sgd:2, "
                 "auto, ..., a comma list")
      ->delimiter(',')
      ->capture_default_str();
  app.add_option("--accumulate", options.accumulate,
                 "passes per step; gradients are reduced after the last one; a comma list")
      ->delimiter(',')
      ->check(CLI::Range(1, 10000))
      ->capture_default_str();
  app.add_option("--local-steps", options.local_steps,
                 "steps between two averages of a parameter, as local_steps.steps of gradwire "
                 "train; 1: gradients are reduced in every step; a comma list")
      ->delimiter(',')
      ->check(CLI::Range(1, 10000))
      ->capture_default_str();
  app.add_option("--fragments", options.fragments,
                 "with --local-steps: parts of the model that are averaged in turn")
      ->capture_default_str();
  app.add_option("--overlap-steps", options.overlap_steps,
                 "with --local-steps: steps that overlap the averaging")
      ->capture_default_str();
  app.add_option("--overlap", options.overlaps,
                 "computation that overlaps communication: none, backward or full (the next "
                 "forward too); a comma list")
      ->delimiter(',')
      ->capture_default_str();
  app.add_option("--zero-stage", options.zero_stages,
                 "state that is sharded over the ranks: 0 none, 1 optimizer states, 2 also "
                 "gradients, 3 also parameters; a comma list")
      ->delimiter(',')
      ->check(CLI::Range(0, 3))
      ->capture_default_str();
  app.add_option("--prefetch", options.prefetch,
                 "with --zero-stage 3: layers for which parameters are gathered ahead")
      ->check(CLI::Range(0, 1000))
      ->capture_default_str();
  auto* const ladder = app.add_flag("--ladder", options.ladder,
                                    "a fixed series of cases, from fp32 without overlap to local "
                                    "steps, in place of the lists above");
  for (const char* list : {"--codec", "--accumulate", "--local-steps", "--fragments",
                           "--overlap-steps", "--overlap", "--zero-stage"}) {
    ladder->excludes(app.get_option(list));
  }
}

void declare_servers(CLI::App& app, StepOptions& options) {
  CLI::Option* const servers =
      app.add_option("--servers", options.servers,
                     "parameter servers, to which workers push gradients and from which they pull "
                     "parameters; 0: the ranks exchange gradients; a comma list")
          ->delimiter(',')
          ->check(CLI::Range(0, kMaxRanks))
          ->capture_default_str();
  app.add_option("--mode", options.modes,
                 "with --servers: sync (a step waits for all workers), ssp:S (no worker begins a "
                 "step before all have finished the one S + 1 before) or async; a comma list")
      ->delimiter(',')
      ->needs(servers)
      ->capture_default_str();
  app.add_option("--place", options.place,
                 "with --servers: own (the last ranks serve) or workers (the first workers do)")
      ->check(CLI::IsMember({"own", "workers"}))
      ->needs(servers)
      ->capture_default_str();
  app.add_option("--use", options.use,
                 "with --mode sync: a step is made of the first gradients, this share of the "
                 "workers; the others are dropped")
      ->check(CLI::Range(0.0, 1.0))
      ->needs(servers)
      ->capture_default_str();
  declare_slow(app, options.slow, "with --servers").needs(app.get_option("--servers"));
  app.add_option("--spread", options.spread,
                 "with --servers: distribution of the compute of a pass: none or exponential")
      ->check(CLI::IsMember({"none", "exponential"}))
      ->needs(servers)
      ->capture_default_str();
}

void declare_measurement(CLI::App& app, StepOptions& options) {
  app.add_option("--steps", options.steps,
                 "measured steps per case; default: as many as take --seconds, at least 3")
      ->check(CLI::Range(1, 1000000));
  app.add_option("--seconds", options.seconds, "approximate seconds to measure each case")
      ->check(CLI::Range(0.001, 3600.0))
      ->capture_default_str();
  app.add_option("--warmup", options.warmup, "steps per case before the measured ones")
      ->check(CLI::Range(1, 1000000))
      ->capture_default_str();
  app.add_option("--bucket", options.bucket, "maximum bucket size, in bytes of float32")
      ->capture_default_str();
  app.add_option("--first-bucket", options.first_bucket,
                 "maximum size of the bucket that backward completes first")
      ->capture_default_str();
  app.add_option(
         "--last-bucket", options.last_bucket,
         "maximum size of the bucket that backward completes last; bucket sizes taper towards it")
      ->capture_default_str();
  app.add_option(
         "--partition", options.partition,
         "approximate piece size, in bytes; larger tensors are split into pieces of it; 0: never")
      ->capture_default_str();
  app.add_option("--codec-min-elements", options.codec_min_elements,
                 "tensors with fewer elements, and vectors, are never compressed")
      ->capture_default_str();
  app.add_option("--piece", options.piece, "bytes of float32 that a codec processes at a time")
      ->capture_default_str();
}

void declare_output(CLI::App& app, StepOptions& options) {
  app.add_option("--json", options.json,
                 "file to which rank 0 writes the rows; - prints them in place of the table");
  app.add_option("--plot", options.plot, "file for a plot of the efficiencies (SVG)");
  app.add_option(
      "--limit", options.limit,
      "rate of the links, such as 10Gb/s: the efficiency bound that follows is printed and drawn");
  app.add_option("--trace", options.trace,
                 "file for a trace of all ranks, for ui.perfetto.dev; with a single case only");
  app.add_option(
         "--compare", options.compare,
         "systems to measure in turn with gradwire: ddp (PyTorch's DistributedDataParallel over "
         "Gloo), ddp-gradwire (the same over gradwire's backend), for the cases that DDP supports")
      ->delimiter(',');
  app.add_option("--rounds", options.rounds,
                 "with --compare: rounds of measurements of each system")
      ->check(CLI::Range(1, 1000))
      ->capture_default_str();
  app.add_option("--python", options.python,
                 "Python interpreter with PyTorch, for DDP; default: GRADWIRE_PYTHON, else .venv "
                 "beside the build folder, else python3")
      ->capture_default_str();
}

step::Overlap overlap_of(const std::string& name) {
  if (const auto overlap = step::overlap_named(name)) return *overlap;
  refuse(unknown_name("overlap", name, step::kOverlapNames));
}

/// The cases of --ladder, from the usual setting to what a slow network can carry.
std::vector<emulation::StepCase> ladder() {
  return {
      {.overlap = step::Overlap::none},
      {.overlap = step::Overlap::backward},
      {},
      {.codec = "bf16"},
      {.codec = "bf16", .accumulate = 2},
      {.codec = "int8"},
      {.codec = "int4"},
      {.codec = "one_bit"},
      {.codec = "power_sgd:1"},
      {.codec = "top_k:0.01"},
      // Maximum overlap with two fragments.
      {.codec = "int8", .local_steps = 16, .fragments = 2, .overlap_steps = 7},
  };
}

bool is_of_single_values(const std::string& codec) {
  const auto spec = codec::parse_codec(codec);
  return spec &&
         (spec->kind() == codec::CodecKind::none || spec->kind() == codec::CodecKind::codec);
}

/// Applies the trainer's rules, and refuses options without effect.
void check_local(const emulation::StepCase& what) {
  step::check_local_steps(what.local());
  if (what.local_steps == 1 || what.overlap == step::Overlap::full) return;
  refuse(
      "--overlap {} applies to gradients, which are not reduced with --local-steps {}: "
      "use --overlap-steps to overlap the averaging",
      name_of(what.overlap), what.local_steps);
}

/// Refuses options that sharding does not support.
void check_zero(const emulation::StepCase& what) {
  if (what.zero_stage == 0) return;
  if (!is_of_single_values(what.codec)) {
    refuse(
        "--zero-stage {} supports codecs of single values, such as none, bf16, int8 or "
        "int4, not {}",
        what.zero_stage, what.codec);
  }
  if (what.accumulate == 1 && what.local_steps == 1 && what.overlap == step::Overlap::full) return;
  refuse("--zero-stage {} requires --accumulate 1, --local-steps 1 and --overlap full",
         what.zero_stage);
}

/// Refuses what servers do not do.
void check_servers(const emulation::StepCase& what) {
  if (what.servers == 0) return;
  const bool alone =
      what.codec == "none" && what.accumulate == 1 && what.local_steps == 1 && what.zero_stage == 0;
  if (!alone) {
    refuse("--servers {} requires --codec none, --accumulate 1, --local-steps 1 and --zero-stage 0",
           what.servers);
  }
}

std::size_t bytes_of(const char* option, const std::string& text) {
  const auto bytes = parse_bytes(text);
  if (!bytes) refuse("{}: {}", option, bytes.error().message);
  return *bytes;
}

/// Every combination of cases with numbers of servers and their modes; modes are for servers.
std::vector<emulation::StepCase> with_servers(const std::vector<emulation::StepCase>& cases,
                                              const StepOptions& options) {
  std::vector<emulation::StepCase> all;
  for (const emulation::StepCase& what : cases) {
    for (const int servers : options.servers) {
      for (const std::string& mode : options.modes) {
        emulation::StepCase& added = all.emplace_back(what);
        if (servers == 0) break;
        added.servers = servers;
        added.beside_workers = options.place == "workers";
        servers::set_mode(added.policy, mode);
        if (added.policy.mode == servers::Mode::sync) added.policy.use = options.use;
      }
    }
  }
  return all;
}

}  // namespace

void declare(CLI::App& app, StepOptions& options, const bootstrap::Environment& environment) {
  options.python = default_python(environment);
  declare_cases(app, options);
  declare_servers(app, options);
  declare_measurement(app, options);
  declare_launch_arguments(app, options.launch);
  declare_engine(app, options.launch);
  declare_output(app, options);
}

std::vector<emulation::StepCase> step_cases(const StepOptions& options) {
  if (options.ladder) return ladder();
  for (const std::string& codec : options.codecs) value_or_throw(codec::check_codec(codec));
  // If any case has local steps, cases without ignore --fragments and --overlap-steps.
  const bool local = std::ranges::any_of(options.local_steps, [](int steps) { return steps > 1; });
  std::vector<emulation::StepCase> cases;
  for (const std::string& codec : options.codecs) {
    for (const int accumulate : options.accumulate) {
      for (const int local_steps : options.local_steps) {
        for (const std::string& overlap : options.overlaps) {
          for (const int stage : options.zero_stages) {
            cases.push_back({codec, accumulate, local_steps, overlap_of(overlap), stage});
            if (local_steps == 1 && local) continue;
            cases.back().fragments = options.fragments;
            cases.back().overlap_steps = options.overlap_steps;
          }
        }
      }
    }
  }
  cases = with_servers(cases, options);
  for (const emulation::StepCase& what : cases) {
    check_zero(what);
    check_local(what);
    check_servers(what);
  }
  return cases;
}

emulation::StepMeasurementOptions measurement_options(const StepOptions& options,
                                                      const workload::LayerProfile& profile) {
  emulation::StepMeasurementOptions how{
      .steps = options.steps, .warmup = options.warmup, .prefetch = options.prefetch};
  how.compute = profile.compute;
  if (options.compute_ms > 0) {
    const std::chrono::duration<double, std::milli> given(options.compute_ms);
    how.compute = std::chrono::duration_cast<Duration>(given);
  }
  if (how.compute <= Duration::zero()) {
    refuse(
        "--compute-ms is missing: the profile {} does not record the time of a forward "
        "and backward pass",
        profile.name);
  }
  how.duration =
      std::chrono::duration_cast<Duration>(std::chrono::duration<double>(options.seconds));
  how.plan.limits = {.first_bytes = bytes_of("--first-bucket", options.first_bucket),
                     .bytes = bytes_of("--bucket", options.bucket),
                     .last_bytes = bytes_of("--last-bucket", options.last_bucket)};
  how.plan.partition_bytes = bytes_of("--partition", options.partition);
  how.plan.codec_min_elements = options.codec_min_elements;
  how.times = {slow_workers(options.slow), options.spread == "exponential"};
  how.exchange.piece_elements = bytes_of("--piece", options.piece) / sizeof(float);
  if (how.exchange.piece_elements == 0) refuse("--piece: expected at least 4 bytes");
  return how;
}

double limit_of(const StepOptions& options) {
  return options.limit.empty() ? 0 : value_or_throw(parse_rate(options.limit));
}

}  // namespace gradwire::cli
