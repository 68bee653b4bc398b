#include "gradwire/cli/plan/plan_arguments.h"

#include <array>
#include <charconv>

#include <fmt/format.h>

#include "gradwire/base/refuse.h"
#include "gradwire/base/units.h"
#include "gradwire/plan/names.h"

namespace gradwire::cli {
namespace {

/// Default samples per pass, if they fit into memory.
constexpr double kUsualBatch = 32;

void declare_system(CLI::App& app, PlanArguments& given) {
  app.add_option("--model", given.model,
                 "resnet50, vgg16, vit_b, bert_base, gpt2, llama2_7b, ..., "
                 "transformer:layers=24,width=1024, or a recorded profile's file")
      ->capture_default_str();
  app.add_option("--params", given.parameters,
                 "number of parameters in place of --model, such as 7.5B or 350M; 64 nodes, unless "
                 "--nodes is given");
  app.add_option("--nodes", given.strategy.nodes, "machines")->capture_default_str();
  app.add_option("--devices", given.strategy.devices_per_node, "accelerators per node")
      ->capture_default_str();
  app.add_option("--device", given.device,
                 "a100, h100, rtx4090, cpu_8, ...; this: measure this machine's CPU")
      ->capture_default_str();
  app.add_option("--utilisation", given.utilization,
                 "share of the device's peak that matrix products reach, 0 to 1; default: 0.5");
  app.add_option("--memory", given.memory,
                 "memory of a device, such as 24G; default: the catalogue's");
  auto* const network =
      app.add_option("--network", given.network,
                     "1gbe, 2.5gbe, 10gbe, 25gbe, 100gbe, ib_hdr, ..., a rate such as 40Gb/s, or a "
                     "file of gradwire probe")
          ->capture_default_str();
  auto* const nics = app.add_option("--nics", given.nics, "network cards per node")
                         ->check(CLI::Range(1, 64))
                         ->capture_default_str();
  app.add_option("--engine", given.engine,
                 "what communicates: own, mpi, gloo or nccl; others than own need --bus-bandwidth")
      ->check(CLI::IsMember({"own", "mpi", "gloo", "nccl"}))
      ->capture_default_str();
  app.add_option("--latency", given.latency,
                 "latency of a hop, such as 20us; default: the network's");
  auto* const oversubscription =
      app.add_option("--oversubscription", given.oversubscription,
                     "ratio of the nodes' bandwidth to the bisection bandwidth of the switches")
          ->check(CLI::Range(1.0, 1000.0))
          ->capture_default_str();
  app.add_option("--bus-bandwidth", given.bus_bandwidth,
                 "of the engine's collectives between the nodes over all cards, as nccl-tests "
                 "defines it, such as 42GB/s; or a file of gradwire bench all_reduce --json; in "
                 "place of --network")
      ->excludes(network, nics, oversubscription);
  app.add_option("--storage", given.storage, "rate from storage to each node, such as 500MB/s");
}

void declare_strategy(CLI::App& app, PlanArguments& given) {
  plan::Strategy& s = given.strategy;
  app.add_option("--batch", s.batch, "samples per pass and device; default: 32, or as many as fit");
  app.add_option("--precision", given.precision,
                 "fp32; bf16: computation in 16 bits; mixed: also gradients and parameters");
  app.add_option("--optimizer", given.optimizer, "sgd, momentum or adam")->capture_default_str();
  app.add_option("--overlap", given.overlap, "none, backward or full")->capture_default_str();
  app.add_option("--codec", s.codec,
                 "gradient compression: none, bf16, int8, int4, top_k:0.01, ...")
      ->capture_default_str();
  app.add_option("--accumulate", s.accumulate, "passes per step")->capture_default_str();
  app.add_option("--zero-stage", s.zero_stage, "0, 1, 2 or 3")->capture_default_str();
  app.add_option("--local-steps", s.local_steps, "steps between two averages")
      ->capture_default_str();
  app.add_option("--fragments", s.fragments,
                 "with --local-steps: parts of the model that are averaged in turn")
      ->capture_default_str();
  app.add_option("--overlap-steps", s.overlap_steps,
                 "with --local-steps: steps that overlap the averaging")
      ->capture_default_str();
  app.add_option("--algorithm", s.algorithm, "all-reduce algorithm; auto: the fastest")
      ->capture_default_str();
  auto* const servers = app.add_option("--servers", given.servers,
                                       "parameter servers; 0: all-reduce; auto: compares numbers "
                                       "of them with an all-reduce")
                            ->check(CLI::Range(0, plan::kMaxNodes) | CLI::IsMember({"auto"}))
                            ->capture_default_str();
  app.add_option("--place", given.place,
                 "of the servers: own (in addition to the nodes) or workers (the first nodes)")
      ->check(CLI::IsMember({"own", "workers"}))
      ->needs(servers)
      ->capture_default_str();
  app.add_option("--mode", given.mode,
                 "with --servers auto: sync, ssp:S or async, of which the staleness is simulated")
      ->needs(servers)
      ->capture_default_str();
  app.add_option("--tensor", s.tensor, "degree of tensor parallelism")->capture_default_str();
  app.add_option("--pipeline", s.pipeline, "number of pipeline stages")->capture_default_str();
  app.add_option("--micro-batches", s.micro_batches, "micro-batches per pass, for the pipeline")
      ->capture_default_str();
  app.add_option(
         "--schedule", s.schedule,
         "of the pipeline: 1f1b, zero_bubble:8, ... (gradwire schedule pipeline lists them)")
      ->capture_default_str();
  app.add_flag("--recompute", s.recompute, "recompute activations in backward");
}

void declare_measurements(CLI::App& app, PlanArguments& given) {
  app.add_option(
         "--step-ms", given.step_ms,
         "measured time of one pass of one device without communication, including the update")
      ->check(CLI::PositiveNumber);
  app.add_option("--comm-ms", given.comm_ms,
                 "measured time of averaging fp32 gradients once, by these nodes over one card")
      ->check(CLI::PositiveNumber);
  app.add_option("--samples", given.prices.samples, "samples per epoch; adds the cost of the run")
      ->check(CLI::PositiveNumber);
  app.add_option("--epochs", given.prices.epochs, "epochs of the run")
      ->check(CLI::PositiveNumber)
      ->capture_default_str();
  app.add_option("--price-per-hour", given.prices.per_node_hour, "price of a node per hour");
  app.add_option("--watts", given.prices.watts, "power of a device; default: the catalogue's");
  app.add_option("--price-per-kwh", given.prices.per_kwh, "price of energy");
}

void declare_answers(CLI::App& app, PlanArguments& given) {
  app.add_flag("--explain", given.explain, "print the origin of every number");
  app.add_option("--json", given.json,
                 "file for the plan as JSON; - prints it in place of the text");
  app.add_option("--html", given.html,
                 "file for a page with sliders, for any browser, self-contained");
  app.add_option("--sweep", given.sweep, "efficiency against the number of nodes: nodes=2..4096");
  app.add_option("--networks", given.networks,
                 "for --sweep, a comma list; default: that of --network and two more")
      ->delimiter(',');
  app.add_option("--algorithms", given.algorithms, "algorithms for --sweep, a comma list")
      ->delimiter(',')
      ->capture_default_str();
  app.add_option("--plot", given.plot, "file for the plot of --sweep, .svg or .html");
  app.add_option(
      "--check", given.check,
      "output of a run: compare the prediction with it, phase by phase; add --help for details");
  app.add_flag(
      "--search", given.search,
      "print the fastest strategy that fits into memory, as a configuration of gradwire train");
  app.add_option("--codecs", given.codecs, "codecs for --search, a comma list")
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
  plan::refuse_name(what, name, names);
}

plan::ComputeType precision_of(const PlanArguments& given, const plan::Device& device) {
  if (!given.precision.empty())
    return one_of(
        "precision", given.precision,
        std::array{plan::ComputeType::fp32, plan::ComputeType::bf16, plan::ComputeType::mixed});
  // The memory formulas of ZeRO's paper assume mixed precision.
  if (!given.parameters.empty()) return plan::ComputeType::mixed;
  return device.peak_bf16 > 1.5 * device.peak_fp32 ? plan::ComputeType::bf16
                                                   : plan::ComputeType::fp32;
}

plan::Device device_of(const PlanArguments& given, Clock& clock) {
  plan::Device device = plan::plain_name(given.device) == "this" ? plan::measure_device(clock)
                                                                 : plan::device_named(given.device);
  if (given.utilization != 0) {
    if (!(given.utilization > 0 && given.utilization <= 1)) {
      refuse("--utilisation {}: expected more than 0, at most 1", given.utilization);
    }
    device.utilization = given.utilization;
  }
  if (!given.memory.empty())
    device.memory_bytes = static_cast<double>(value_or_throw(parse_bytes(given.memory)));
  return device;
}

plan::Network network_of(const PlanArguments& given) {
  const bool by_bus = !given.bus_bandwidth.empty();
  if (!by_bus && given.engine != "own") {
    refuse(
        "--engine {}: its bandwidth is neither given nor measured: add --bus-bandwidth, with a "
        "rate such as 42GB/s or a file of gradwire bench all_reduce --json",
        given.engine);
  }
  plan::Network network = by_bus ? plan::network_of_engine(given.engine, given.bus_bandwidth)
                                 : plan::network_named(given.network);
  network.cards = given.nics;
  network.oversubscription = given.oversubscription;
  if (!given.latency.empty()) {
    network.latency =
        std::chrono::duration<double>(value_or_throw(parse_duration(given.latency))).count();
  }
  return network;
}

/// Refuses options that the engine lacks in a job, or that its bus bandwidth replaces.
void check_engine(const PlanArguments& given, const plan::PlanInput& input) {
  const plan::Strategy& s = input.strategy;
  if (input.network.by_bus_bandwidth && (s.algorithm != "auto" || given.comm_ms > 0)) {
    refuse("--bus-bandwidth has the engine's algorithms and replaces a measured time: leave out {}",
           given.comm_ms > 0 ? "--comm-ms" : "--algorithm");
  }
  if (given.engine == "own") return;
  const auto lacks = [&](const char* option, const char* what, const char* engines) {
    refuse("{} with --engine {}: {} {}", option, given.engine, what, engines);
  };
  if (given.servers != "0") lacks("--servers", "parameter servers need", "gradwire's own engine");
  if (input.network.takes_codecs()) return;
  constexpr const char* kEngines = "gradwire's own engine or mpi";
  if (s.codec != "none") lacks("--codec", "codecs need", kEngines);
  if (given.search)
    lacks("--search", "it prints a configuration of gradwire train, which takes", kEngines);
}

void check_model(const plan::PlanInput& input) {
  const plan::Strategy& s = input.strategy;
  const plan::TransformerShape& shape = input.model.transformer;
  if (s.tensor > 1 && (shape.heads == 0 || shape.heads % s.tensor != 0)) {
    refuse("--tensor {}: must divide the attention heads of {}, which has {}", s.tensor,
           input.model.name, shape.heads);
  }
  if (s.pipeline > static_cast<int>(input.model.layers.size())) {
    refuse("--pipeline {}: more stages than the layers of {}, which has {}", s.pipeline,
           input.model.name, input.model.layers.size());
  }
}

}  // namespace

void declare(CLI::App& app, PlanArguments& given) {
  declare_system(app, given);
  declare_strategy(app, given);
  declare_measurements(app, given);
  declare_answers(app, given);
}

plan::PlanInput plan_input(const PlanArguments& given, Clock& clock) {
  plan::PlanInput input{.model = given.parameters.empty()
                                     ? plan::model_named(given.model)
                                     : plan::model_of_size(plan::parse_count(given.parameters)),
                        .device = device_of(given, clock),
                        .network = network_of(given),
                        .strategy = given.strategy};
  plan::Strategy& s = input.strategy;
  s.servers = given.servers == "auto" ? 0 : std::stoi(given.servers);
  s.beside_workers = given.place == "workers";
  s.compute = precision_of(given, input.device);
  s.optimizer = one_of("optimizer", given.optimizer,
                       std::array{plan::OptimizerKind::sgd, plan::OptimizerKind::momentum,
                                  plan::OptimizerKind::adam});
  s.overlap = one_of("overlap", given.overlap,
                     std::array{step::Overlap::none, step::Overlap::backward, step::Overlap::full});
  if (!given.storage.empty())
    input.storage_bytes_per_second = value_or_throw(parse_rate(given.storage));
  input.measured = {
      .step = given.step_ms / 1e3, .communication = given.comm_ms / 1e3, .nodes = s.nodes};
  if (given.comm_ms > 0 && s.nodes < 2) {
    refuse("--comm-ms: one node has no communication; give --nodes 2 or more");
  }
  const double given_batch = s.batch;
  if (given_batch == 0) s.batch = 1;
  plan::check_strategy(s);
  check_engine(given, input);
  check_model(input);
  // A search determines what fits.
  if (given_batch == 0)
    s.batch = given.search ? kUsualBatch : plan::batch_that_fits(input, kUsualBatch);
  return input;
}

namespace {

int number_of_machines(const std::string& answer) {
  int number = 0;
  const char* const end = answer.data() + answer.size();
  const auto [rest, error] = std::from_chars(answer.data(), end, number);
  if (error != std::errc{} || rest != end || number < 1)
    refuse("\"{}\": expected a number of machines, 1 or more", answer);
  plan::Strategy strategy{.nodes = number};
  plan::check_strategy(strategy);
  return number;
}

}  // namespace

std::optional<PlanArguments> ask_for_plan(
    const std::function<std::optional<std::string>(const std::string&)>& ask,
    const std::function<void(const std::string&)>& tell) {
  PlanArguments given;
  // Returns false at the end of the input.
  const auto question = [&](const std::string& prompt,
                            const std::function<void(const std::string&)>& take) {
    while (true) {
      const std::optional<std::string> answer = ask(prompt);
      if (!answer || answer->empty()) return answer.has_value();
      try {
        take(*answer);
        return true;
      } catch (const Exception& e) {
        tell(e.what());
      }
    }
  };
  const bool complete = question(fmt::format("Which model? [{}] ", given.model),
                                 [&](const std::string& answer) {
                                   plan::model_named(answer);
                                   given.model = answer;
                                 }) &&
                        question(fmt::format("How many machines? [{}] ", given.strategy.nodes),
                                 [&](const std::string& answer) {
                                   given.strategy.nodes = number_of_machines(answer);
                                 }) &&
                        question(fmt::format("Which network joins them? [{}] ", given.network),
                                 [&](const std::string& answer) {
                                   plan::network_named(answer);
                                   given.network = answer;
                                 });
  return complete ? std::optional(given) : std::nullopt;
}

}  // namespace gradwire::cli
