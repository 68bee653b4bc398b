#include "gradwire/cli/bench/step_options.h"

#include <algorithm>

#include <fmt/format.h>

#include "gradwire/base/refuse.h"
#include "gradwire/base/suggest.h"
#include "gradwire/base/units.h"
#include "gradwire/cli/bench/usual_python.h"
#include "gradwire/codec/catalogue.h"
#include "gradwire/gradient/profiles.h"

namespace gradwire {
namespace {

void declare_cases(CLI::App& app, StepOptions& options) {
  app.add_option("--profile", options.profile,
                 "the model: resnet50, resnet101, vit_s, vit_b, gpt2, uniform:LAYERSxBYTES, or "
                 "a file that gradwire train --record-profile wrote")
      ->capture_default_str();
  app.add_option("--compute-ms", options.compute_ms,
                 "how long a forward and backward pass takes; default: as long as when the "
                 "profile was recorded")
      ->check(CLI::Range(0.001, 3.6e6));
  app.add_option("--codec", options.codecs,
                 "how gradients travel: none, bf16, int8, int4, one_bit, top_k:0.01, power_sgd:2, "
                 "auto, ..., a comma list")
      ->delimiter(',')
      ->capture_default_str();
  app.add_option("--accumulate", options.accumulate,
                 "passes a step, of which the last one's gradients travel; a comma list")
      ->delimiter(',')
      ->check(CLI::Range(1, 10000))
      ->capture_default_str();
  app.add_option("--local-steps", options.local_steps,
                 "steps between two averages of a parameter, as local_steps.steps of gradwire "
                 "train; 1: gradients are averaged in every step; a comma list")
      ->delimiter(',')
      ->check(CLI::Range(1, 10000))
      ->capture_default_str();
  app.add_option("--fragments", options.fragments,
                 "with --local-steps: parts of the model that are averaged in turn")
      ->capture_default_str();
  app.add_option("--overlap-steps", options.overlap_steps,
                 "with --local-steps: steps taken while an average travels")
      ->capture_default_str();
  app.add_option("--overlap", options.overlaps,
                 "what communication hides behind: none, backward or full (the next forward too); "
                 "a comma list")
      ->delimiter(',')
      ->capture_default_str();
  app.add_option("--zero-stage", options.zero_stages,
                 "what ranks share instead of each having it: 0 nothing, 1 the optimiser's states, "
                 "2 gradients too, 3 parameters too; a comma list")
      ->delimiter(',')
      ->check(CLI::Range(0, 3))
      ->capture_default_str();
  app.add_option("--prefetch", options.prefetch,
                 "with --zero-stage 3: so many layers ahead parameters are gathered")
      ->check(CLI::Range(0, 1000))
      ->capture_default_str();
  auto* const ladder =
      app.add_flag("--ladder", options.ladder,
                   "from fp32 with nothing overlapped to local steps, rung by rung: in place of "
                   "the lists above");
  for (const char* list : {"--codec", "--accumulate", "--local-steps", "--fragments",
                           "--overlap-steps", "--overlap", "--zero-stage"}) {
    ladder->excludes(app.get_option(list));
  }
}

void declare_measurement(CLI::App& app, StepOptions& options) {
  app.add_option("--steps", options.steps,
                 "steps that count, for each case; default: those of --seconds, at least 3")
      ->check(CLI::Range(1, 1000000));
  app.add_option("--seconds", options.seconds, "how long to measure a case, about")
      ->check(CLI::Range(0.001, 3600.0))
      ->capture_default_str();
  app.add_option("--warmup", options.warmup, "steps for each case before those that count")
      ->check(CLI::Range(1, 1000000))
      ->capture_default_str();
  app.add_option("--bucket", options.bucket, "most bytes of float32 that travel together")
      ->capture_default_str();
  app.add_option("--first-bucket", options.first_bucket,
                 "the same of what backward completes first")
      ->capture_default_str();
  app.add_option("--last-bucket", options.last_bucket,
                 "the same of what it completes last; in between buckets taper")
      ->capture_default_str();
  app.add_option("--partition", options.partition,
                 "larger tensors are cut into such pieces, which travel by themselves; 0: never")
      ->capture_default_str();
  app.add_option("--codec-min-elements", options.codec_min_elements,
                 "smaller tensors travel as they are whatever the codec, and so do vectors")
      ->capture_default_str();
  app.add_option("--piece", options.piece, "bytes of float32 that a codec works on at once")
      ->capture_default_str();
}

void declare_output(CLI::App& app, StepOptions& options) {
  app.add_option("--json", options.json,
                 "file that rank 0 writes the rows to; - is standard output, instead of the table");
  app.add_option("--plot", options.plot, "file for a plot of the efficiencies (SVG)");
  app.add_option("--limit", options.limit,
                 "rate of the links, such as 10Gb/s: what efficiency it bounds is printed, and "
                 "drawn");
  app.add_option("--trace", options.trace,
                 "file for what every rank did when, for ui.perfetto.dev; of a single case");
  app.add_option("--compare", options.compare,
                 "measure these in turn with gradwire: ddp (PyTorch's DistributedDataParallel over "
                 "Gloo), ddp-gradwire (the same over gradwire's backend), for the cases that DDP "
                 "has")
      ->delimiter(',');
  app.add_option("--rounds", options.rounds, "with --compare: how often each takes its turn")
      ->check(CLI::Range(1, 1000))
      ->capture_default_str();
  app.add_option("--python", options.python,
                 "the Python with PyTorch, for DDP; default: GRADWIRE_PYTHON, "
                 "else .venv beside the build folder, else python3")
      ->capture_default_str();
}

Overlap overlap_of(const std::string& name) {
  if (const auto overlap = overlap_named(name)) return *overlap;
  refuse(unknown_name("overlap", name, kOverlapNames));
}

/// The way from what most people have to what this network can carry.
std::vector<StepCase> ladder() {
  return {
      {.overlap = Overlap::none},
      {.overlap = Overlap::backward},
      {},
      {.codec = "bf16"},
      {.codec = "bf16", .accumulate = 2},
      {.codec = "int8"},
      {.codec = "int4"},
      {.codec = "one_bit"},
      {.codec = "power_sgd:1"},
      {.codec = "top_k:0.01"},
      // As much overlap as there may be with two fragments.
      {.codec = "int8", .local_steps = 16, .fragments = 2, .overlap_steps = 7},
  };
}

bool is_of_single_values(const std::string& codec) {
  const auto spec = parse_codec(codec);
  return spec && (spec->kind() == CodecKind::none || spec->kind() == CodecKind::codec);
}

/// The trainer's own rules, and what would say nothing here.
void check_local(const StepCase& what) {
  check_local_steps(what.local());
  if (what.local_steps == 1 || what.overlap == Overlap::full) return;
  refuse(
      fmt::format("--overlap {} is about gradients, which stay where they are with --local-steps "
                  "{}: there --overlap-steps says what averages hide behind",
                  name_of(what.overlap), what.local_steps));
}

/// Sharding has little of the rest.
void check_zero(const StepCase& what) {
  if (what.zero_stage == 0) return;
  if (!is_of_single_values(what.codec)) {
    refuse(
        fmt::format("--zero-stage {} goes with codecs of single values, as none, bf16, int8 or "
                    "int4, not with {}",
                    what.zero_stage, what.codec));
  }
  if (what.accumulate == 1 && what.local_steps == 1 && what.overlap == Overlap::full) return;
  refuse(
      fmt::format("--zero-stage {} goes with --accumulate 1, --local-steps 1 and --overlap full "
                  "alone",
                  what.zero_stage));
}

std::size_t bytes_of(const char* option, const std::string& text) {
  const auto bytes = parse_bytes(text);
  if (!bytes) refuse(fmt::format("{}: {}", option, bytes.error().message));
  return *bytes;
}

}  // namespace

void declare(CLI::App& app, StepOptions& options, const Environment& environment) {
  options.python = usual_python(environment);
  declare_cases(app, options);
  declare_measurement(app, options);
  declare_launch_arguments(app, options.launch);
  declare_output(app, options);
}

std::vector<StepCase> step_cases(const StepOptions& options) {
  if (options.ladder) return ladder();
  for (const std::string& codec : options.codecs) value_or_throw(check_codec(codec));
  // Beside cases with local steps, those without have nothing to do with what is of local steps.
  const bool local = std::ranges::any_of(options.local_steps, [](int steps) { return steps > 1; });
  std::vector<StepCase> cases;
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
  for (const StepCase& what : cases) {
    check_zero(what);
    check_local(what);
  }
  return cases;
}

StepMeasurementOptions measurement_options(const StepOptions& options,
                                           const LayerProfile& profile) {
  StepMeasurementOptions how{
      .steps = options.steps, .warmup = options.warmup, .prefetch = options.prefetch};
  how.compute = profile.compute;
  if (options.compute_ms > 0) {
    const std::chrono::duration<double, std::milli> given(options.compute_ms);
    how.compute = std::chrono::duration_cast<Duration>(given);
  }
  if (how.compute <= Duration::zero()) {
    refuse(
        fmt::format("--compute-ms: say how long a forward and backward pass of {} takes on your "
                    "machines; the profile does not",
                    profile.name));
  }
  how.duration =
      std::chrono::duration_cast<Duration>(std::chrono::duration<double>(options.seconds));
  how.plan.limits = {.first_bytes = bytes_of("--first-bucket", options.first_bucket),
                     .bytes = bytes_of("--bucket", options.bucket),
                     .last_bytes = bytes_of("--last-bucket", options.last_bucket)};
  how.plan.partition_bytes = bytes_of("--partition", options.partition);
  how.plan.exact_below = options.codec_min_elements;
  how.averager.piece_elements = bytes_of("--piece", options.piece) / sizeof(float);
  if (how.averager.piece_elements == 0) refuse("--piece: at least 4 bytes");
  return how;
}

double limit_of(const StepOptions& options) {
  return options.limit.empty() ? 0 : value_or_throw(parse_rate(options.limit));
}

}  // namespace gradwire
