#include "gradwire/cli/bench/pipeline_options.h"

#include "gradwire/base/units.h"
#include "gradwire/cli/bench/bench_options.h"
#include "gradwire/pipeline/catalogue.h"

namespace gradwire::cli {
namespace {

void declare_model(CLI::App& app, PipelineBenchOptions& options) {
  app.add_option("--stages", options.stages,
                 "ranks of the pipeline; without -n or --hosts they are started on this host; "
                 "default: all ranks of the job")
      ->check(CLI::Range(1, kMaxRanks));
  app.add_option("--micro-batches", options.micro_batches, "micro-batches of a step")
      ->check(CLI::Range(1, 1 << 16))
      ->capture_default_str();
  app.add_option("--schedule", options.schedules,
                 "gpipe, 1f1b, interleaved:CHUNKS, zero_bubble_h1, zero_bubble:KEPT, ... "
                 "(gradwire schedule pipeline lists them), a comma list")
      ->delimiter(',')
      ->capture_default_str();
  const auto add_time = [&](const char* name, double& value, const char* what) {
    app.add_option(name, value, what)->check(CLI::Range(0.0, 3.6e6))->capture_default_str();
  };
  add_time("--forward-ms", options.forward_ms, "time of a micro-batch's forward on a rank");
  add_time("--input-ms", options.input_ms, "time of its gradients of inputs");
  add_time("--weight-ms", options.weight_ms, "time of its gradients of weights");
  app.add_option("--message-bytes", options.message, "size of an activation between two stages")
      ->capture_default_str();
  app.add_flag("--barrier", options.barrier,
               "a step begins when all ranks have ended the last one");
  app.add_option("--replicas", options.replicas,
                 "replicas of the pipeline, which sum the gradients of each stage: neighbouring "
                 "ranks have the same stage")
      ->check(CLI::Range(1, kMaxRanks))
      ->capture_default_str();
  app.add_option("--gradient-bytes", options.gradients, "with --replicas: gradients of a stage")
      ->capture_default_str();
  app.add_flag(
      "--each-micro-batch", options.each_micro_batch,
      "with --replicas: gradients are summed after each micro-batch, as with ZeRO 2 and 3");
  app.add_flag("--equal-priority", options.equal_priority,
               "messages between stages do not overtake sums of gradients");
}

void declare_measurement(CLI::App& app, PipelineBenchOptions& options,
                         const bootstrap::Environment& environment) {
  app.add_option("--steps", options.steps, "measured steps of each schedule")
      ->check(CLI::Range(1, 1000000))
      ->capture_default_str();
  app.add_option("--warmup", options.warmup, "steps of each schedule before the measured ones")
      ->check(CLI::Range(1, 1000000))
      ->capture_default_str();
  app.add_option("--json", options.json,
                 "file to which rank 0 writes the rows; - prints them in place of the table");
  app.add_option("--compare", options.compare,
                 "systems to measure in turn with gradwire: torch (torch.distributed.pipelining "
                 "over Gloo), torch-gradwire (the same over gradwire's backend)")
      ->delimiter(',');
  app.add_option("--rounds", options.rounds,
                 "with --compare: rounds of measurements of each system")
      ->check(CLI::Range(1, 1000))
      ->capture_default_str();
  options.python = default_python(environment);
  app.add_option("--python", options.python,
                 "Python interpreter with PyTorch, for --compare; default: GRADWIRE_PYTHON, else "
                 ".venv beside the build folder, else python3")
      ->capture_default_str();
}

}  // namespace

void declare(CLI::App& app, PipelineBenchOptions& options,
             const bootstrap::Environment& environment) {
  declare_model(app, options);
  declare_measurement(app, options, environment);
  declare_launch_arguments(app, options.launch);
  declare_engine(app, options.launch);
}

emulation::PipelineMeasurementOptions measurement_options(const PipelineBenchOptions& options) {
  return {.compute = {options.forward_ms / 1e3, options.input_ms / 1e3, options.weight_ms / 1e3},
          .message_bytes = value_or_throw(parse_bytes(options.message)),
          .warmup = options.warmup,
          .steps = options.steps,
          .replicas = {.group = nullptr,
                       .gradient_bytes = value_or_throw(parse_bytes(options.gradients)),
                       .each_micro_batch = options.each_micro_batch},
          .prioritizes = !options.equal_priority};
}

pipeline::PipelineSchedule schedule_named(const std::string& name,
                                          const PipelineBenchOptions& options, int ranks,
                                          const emulation::TransferTime& transfer) {
  pipeline::PipelineOptions how{.ranks = ranks, .micro_batches = options.micro_batches};
  const int stages = ranks * pipeline::chunks_of(name, how);
  how.costs = pipeline::divided_costs(measurement_options(options).compute, ranks, stages);
  how.costs.transfer = transfer.transfer;
  how.costs.latency = transfer.latency;
  pipeline::PipelineSchedule schedule = value_or_throw(pipeline::make_pipeline(name, how));
  schedule.barrier = options.barrier;
  return schedule;
}

}  // namespace gradwire::cli
