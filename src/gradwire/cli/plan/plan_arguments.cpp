#include "gradwire/cli/plan/plan_arguments.h"

#include <array>

#include <fmt/format.h>

#include "gradwire/base/units.h"
#include "gradwire/plan/names.h"

namespace gradwire {
namespace {

/// Samples of a pass, where there is memory for so many.
constexpr double kUsualBatch = 32;

void declare_system(CLI::App& app, PlanArguments& given) {
  app.add_option("--model", given.model,
                 "resnet50, vgg16, vit_b, bert_base, gpt2, llama2_7b, ..., "
                 "transformer:layers=24,width=1024, or a recorded profile's file")
      ->capture_default_str();
  app.add_option(
      "--params", given.parameters,
      "in its place only a number of parameters, 7.5B or 350M; on 64 nodes, unless --nodes "
      "says");
  app.add_option("--nodes", given.strategy.nodes, "machines")->capture_default_str();
  app.add_option("--devices", given.strategy.devices_per_node, "accelerators in each")
      ->capture_default_str();
  app.add_option("--device", given.device,
                 "a100, h100, rtx4090, cpu_8, ...; this: measures this machine's processors")
      ->capture_default_str();
  app.add_option("--utilisation", given.utilisation,
                 "part of the device's peak that matrix products get, 0 to 1; by default 0.5");
  app.add_option("--memory", given.memory, "of a device, in its place: 24G");
  app.add_option("--network", given.network,
                 "1gbe, 2.5gbe, 10gbe, 25gbe, 100gbe, ib_hdr, ..., a rate such as 40Gb/s, or the "
                 "file of gradwire probe")
      ->capture_default_str();
  app.add_option("--nics", given.nics, "network cards of each node")
      ->check(CLI::Range(1, 64))
      ->capture_default_str();
  app.add_option("--latency", given.latency, "of a hop, in place of the network's: 20us");
  app.add_option("--oversubscription", given.oversubscription,
                 "how many times less the switches carry between halves of the nodes")
      ->check(CLI::Range(1.0, 1000.0))
      ->capture_default_str();
  app.add_option("--storage", given.storage, "from storage to each node: 500MB/s");
}

void declare_strategy(CLI::App& app, PlanArguments& given) {
  Strategy& s = given.strategy;
  app.add_option("--batch", s.batch,
                 "samples of a pass, on each device; by default 32, or as many as fit");
  app.add_option("--precision", given.precision,
                 "fp32; bf16: computes in 16 bits; mixed: gradients and parameters too");
  app.add_option("--optimizer", given.optimizer, "sgd, momentum or adam")->capture_default_str();
  app.add_option("--overlap", given.overlap, "none, backward or full")->capture_default_str();
  app.add_option("--codec", s.codec, "of gradients: none, bf16, int8, int4, top_k:0.01, ...")
      ->capture_default_str();
  app.add_option("--accumulate", s.accumulate, "passes a step")->capture_default_str();
  app.add_option("--zero-stage", s.zero_stage, "0, 1, 2 or 3")->capture_default_str();
  app.add_option("--local-steps", s.local_steps, "steps between two averages")
      ->capture_default_str();
  app.add_option("--fragments", s.fragments,
                 "with --local-steps: parts of the model that are averaged in turn")
      ->capture_default_str();
  app.add_option("--overlap-steps", s.overlap_steps,
                 "with --local-steps: steps taken while an average travels")
      ->capture_default_str();
  app.add_option("--algorithm", s.algorithm, "of the all-reduce; auto: the fastest")
      ->capture_default_str();
  app.add_option("--servers", s.servers, "parameter servers besides the nodes; 0: all-reduce")
      ->capture_default_str();
  app.add_option("--tensor", s.tensor, "devices that share every layer")->capture_default_str();
  app.add_option("--pipeline", s.pipeline, "stages of a pipeline")->capture_default_str();
  app.add_option("--micro-batches", s.micro_batches, "parts of a pass, for the pipeline")
      ->capture_default_str();
  app.add_flag("--recompute", s.recompute, "activations are computed again in backward");
}

void declare_measurements(CLI::App& app, PlanArguments& given) {
  app.add_option("--step-ms", given.step_ms,
                 "measured: one pass of one device without communication, the update included")
      ->check(CLI::PositiveNumber);
  app.add_option("--comm-ms", given.comm_ms,
                 "measured: averaging fp32 gradients once, by these nodes over one card")
      ->check(CLI::PositiveNumber);
  app.add_option("--samples", given.prices.samples, "of an epoch; with it, the run's cost")
      ->check(CLI::PositiveNumber);
  app.add_option("--epochs", given.prices.epochs, "of the run")
      ->check(CLI::PositiveNumber)
      ->capture_default_str();
  app.add_option("--price-per-hour", given.prices.per_node_hour, "rent of a node");
  app.add_option("--watts", given.prices.watts, "of a device; by default the catalogue's");
  app.add_option("--price-per-kwh", given.prices.per_kwh, "price of energy");
}

void declare_answers(CLI::App& app, PlanArguments& given) {
  app.add_flag("--explain", given.explain, "says of every number where it comes from");
  app.add_option("--json", given.json, "the plan as JSON; -: on stdout, in place of text");
  app.add_option("--html", given.html, "a page with sliders, for any browser, without network");
  app.add_option("--sweep", given.sweep, "efficiency against nodes: nodes=2..4096");
  app.add_option("--networks", given.networks,
                 "for --sweep, a comma list; by default --network's and two more")
      ->delimiter(',');
  app.add_option("--algorithms", given.algorithms, "for --sweep, a comma list")
      ->delimiter(',')
      ->capture_default_str();
  app.add_option("--plot", given.plot, "file for the sweep's plot, SVG or HTML");
  app.add_option("--check", given.check,
                 "what a run wrote: holds the prediction against it, phase by phase; with --help, "
                 "says more");
  app.add_flag("--search", given.search,
               "the fastest strategy within memory, as gradwire train's configuration");
  app.add_option("--codecs", given.codecs, "that --search may use, a comma list")
      ->delimiter(',')
      ->capture_default_str();
}

template <class Named, std::size_t N>
Named one_of(std::string_view what, const std::string& name, const std::array<Named, N>& all) {
  std::vector<std::string_view> names;
  for (const Named one : all) {
    if (name_of(one) == name) return one;
    names.push_back(name_of(one));
  }
  refuse_name(what, name, names);
}

ComputeType precision_of(const PlanArguments& given, const Device& device) {
  if (!given.precision.empty())
    return one_of("precision", given.precision,
                  std::array{ComputeType::fp32, ComputeType::bf16, ComputeType::mixed});
  // ZeRO's paper counts its states so.
  if (!given.parameters.empty()) return ComputeType::mixed;
  return device.peak_bf16 > 1.5 * device.peak_fp32 ? ComputeType::bf16 : ComputeType::fp32;
}

Device device_of(const PlanArguments& given, Clock& clock) {
  Device device =
      plain_name(given.device) == "this" ? measure_device(clock) : device_named(given.device);
  if (given.utilisation != 0) {
    if (!(given.utilisation > 0 && given.utilisation <= 1)) {
      throw Exception(
          ErrorKind::invalid_argument,
          fmt::format("--utilisation {}: expected more than 0, at most 1", given.utilisation));
    }
    device.utilisation = given.utilisation;
  }
  if (!given.memory.empty())
    device.memory_bytes = static_cast<double>(value_or_throw(parse_bytes(given.memory)));
  return device;
}

Network network_of(const PlanArguments& given) {
  Network network = network_named(given.network);
  network.cards = given.nics;
  network.oversubscription = given.oversubscription;
  if (!given.latency.empty()) {
    network.latency =
        std::chrono::duration<double>(value_or_throw(parse_duration(given.latency))).count();
  }
  return network;
}

void check_model(const PlanInput& input) {
  const Strategy& s = input.strategy;
  const TransformerShape& shape = input.model.transformer;
  if (s.tensor > 1 && (shape.heads == 0 || shape.heads % s.tensor != 0)) {
    throw Exception(ErrorKind::invalid_argument,
                    fmt::format("tensor {}: {} has {} attention heads, which it must divide",
                                s.tensor, input.model.name, shape.heads));
  }
  if (s.pipeline > static_cast<int>(input.model.layers.size())) {
    throw Exception(ErrorKind::invalid_argument,
                    fmt::format("{} pipeline stages: {} has {} layers", s.pipeline,
                                input.model.name, input.model.layers.size()));
  }
}

}  // namespace

void declare(CLI::App& app, PlanArguments& given) {
  declare_system(app, given);
  declare_strategy(app, given);
  declare_measurements(app, given);
  declare_answers(app, given);
}

PlanInput plan_input(const PlanArguments& given, Clock& clock) {
  PlanInput input{.model = given.parameters.empty() ? model_named(given.model)
                                                    : model_of_size(parse_count(given.parameters)),
                  .device = device_of(given, clock),
                  .network = network_of(given),
                  .strategy = given.strategy};
  Strategy& s = input.strategy;
  s.compute = precision_of(given, input.device);
  s.optimiser = one_of("optimizer", given.optimizer,
                       std::array{Optimiser::sgd, Optimiser::momentum, Optimiser::adam});
  s.overlap =
      one_of("overlap", given.overlap, std::array{Overlap::none, Overlap::backward, Overlap::full});
  if (!given.storage.empty())
    input.storage_bytes_per_second = value_or_throw(parse_rate(given.storage));
  input.measured = {
      .step = given.step_ms / 1e3, .communication = given.comm_ms / 1e3, .nodes = s.nodes};
  if (given.comm_ms > 0 && s.nodes < 2) {
    throw Exception(ErrorKind::invalid_argument,
                    "--comm-ms: one node averages with nobody; give --nodes 2 or more");
  }
  const double given_batch = s.batch;
  if (given_batch == 0) s.batch = 1;
  check_strategy(s);
  check_model(input);
  // A search finds out by itself what fits.
  if (given_batch == 0) s.batch = given.search ? kUsualBatch : batch_that_fits(input, kUsualBatch);
  return input;
}

}  // namespace gradwire
