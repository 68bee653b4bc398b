#include "gradwire/cli/plan/simulate_options.h"

#include <algorithm>
#include <filesystem>

#include <fmt/format.h>

#include "gradwire/base/read_file.h"
#include "gradwire/base/refuse.h"
#include "gradwire/base/suggest.h"
#include "gradwire/base/units.h"
#include "gradwire/plan/model.h"
#include "gradwire/plan/network.h"
#include "gradwire/topology/topology_file.h"
#include "gradwire/workload/profiles.h"

namespace gradwire {
namespace {

std::size_t bytes_of(const char* option, const std::string& text) {
  const auto bytes = parse_bytes(text);
  if (!bytes) refuse(fmt::format("{}: {}", option, bytes.error().message));
  return *bytes;
}

void declare_links(CLI::App& app, SimulateOptions& options) {
  app.add_option("--topology", options.topology,
                 "file of gradwire probe with hosts and links, in place of the options below");
  app.add_option("--nodes", options.nodes, "hosts")
      ->check(CLI::Range(1, 16384))
      ->capture_default_str();
  app.add_option("--per-node", options.per_node, "ranks per host")
      ->check(CLI::Range(1, 64))
      ->capture_default_str();
  app.add_option("--network", options.network,
                 "as in gradwire plan: 10gbe, ..., a rate, or a file of gradwire probe")
      ->capture_default_str();
  app.add_option("--latency", options.latency,
                 "one-way latency, such as 40us; default: the network's");
  app.add_option("--slow-host", options.slow_host,
                 "one host computes at this share of the others' speed, such as 0.5")
      ->check(CLI::Range(1e-3, 1.0));
  app.add_option("--slow-port", options.slow_port,
                 "one host's port has this share of the others' rate")
      ->check(CLI::Range(1e-3, 1.0));
  app.add_option("--rack", options.rack, "hosts per switch; 0: all hosts share one")
      ->check(CLI::Range(0, 16384));
  app.add_option("--oversubscription", options.oversubscription,
                 "ratio of the bandwidth of a rack's hosts to that of its uplink")
      ->check(CLI::Range(1.0, 1000.0));
}

void declare_work(CLI::App& app, SimulateOptions& options) {
  app.add_option("--collective", options.collective,
                 "simulate one operation, on --bytes, in place of a step");
  app.add_option("--bytes", options.bytes, "size of all ranks' parts together")
      ->capture_default_str();
  app.add_option("--algorithm", options.algorithm, "ring, direct, ...; auto: the fastest")
      ->capture_default_str();
  app.add_option("--profile,--model", options.profile,
                 "model, as in gradwire bench step or gradwire plan")
      ->capture_default_str();
  app.add_option("--compute-ms,--step-ms", options.compute_ms,
                 "time of a forward and backward pass; default: the profile's")
      ->check(CLI::NonNegativeNumber);
  app.add_option("--update-ms", options.update_ms, "time of the optimizer's update")
      ->check(CLI::NonNegativeNumber)
      ->capture_default_str();
  app.add_option("--codec", options.codec, "gradient compression")->capture_default_str();
  app.add_option("--codec-speeds", options.codec_speeds,
                 "output of gradwire bench codec --json on such a host");
  app.add_option("--accumulate", options.accumulate, "passes per step")
      ->check(CLI::Range(1, 10000));
  app.add_option("--local-steps", options.local_steps, "steps between two averages of a parameter")
      ->check(CLI::Range(1, 10000));
  app.add_option("--fragments", options.fragments,
                 "with --local-steps: parts of the model that are averaged in turn");
  app.add_option("--overlap-steps", options.overlap_steps,
                 "with --local-steps: steps that overlap the averaging");
  app.add_option("--overlap", options.overlap, "none, backward or full")->capture_default_str();
  app.add_option("--bucket", options.bucket, "as in gradwire bench step")->capture_default_str();
  app.add_option("--first-bucket", options.first_bucket)->capture_default_str();
  app.add_option("--last-bucket", options.last_bucket)->capture_default_str();
  app.add_option("--partition", options.partition)->capture_default_str();
  app.add_option("--piece", options.piece)->capture_default_str();
}

void declare_failures(CLI::App& app, SimulateOptions& options) {
  app.add_option("--failures-per-day", options.failures_per_day, "failures of all hosts together")
      ->check(CLI::Range(0.0, 1e5));
  app.add_option("--checkpoint-s", options.checkpoint_s,
                 "seconds that a checkpoint blocks training")
      ->check(CLI::NonNegativeNumber)
      ->capture_default_str();
  app.add_option("--restart-s", options.restart_s, "seconds from a failure until training resumes")
      ->check(CLI::NonNegativeNumber)
      ->capture_default_str();
}

}  // namespace

void declare(CLI::App& app, SimulateOptions& options) {
  declare_links(app, options);
  declare_work(app, options);
  declare_failures(app, options);
  app.add_option("--json", options.json,
                 "file for the result as JSON; - prints it in place of the text");
}

Fabric fabric_of(const SimulateOptions& options) {
  const Network network = network_named(options.network);
  Fabric fabric{.hosts = options.nodes, .ranks_per_host = options.per_node};
  fabric.port.bytes_per_second = network.goodput();
  fabric.port.latency =
      options.latency.empty()
          ? std::chrono::duration_cast<Duration>(std::chrono::duration<double>(network.latency))
          : value_or_throw(parse_duration(options.latency));
  fabric.rack_hosts = options.rack;
  fabric.oversubscription = options.oversubscription;
  if (options.oversubscription > 1 && options.rack == 0)
    refuse("--oversubscription requires --rack, the number of hosts per rack");
  if (options.slow_port < 1) fabric.port_factor[options.nodes / 2] = options.slow_port;
  if (fabric.ranks() > 16384)
    refuse(fmt::format("{} ranks: at most 16384 can be simulated", fabric.ranks()));
  return fabric;
}

SimulatedLinks links_of(const SimulateOptions& options) {
  const bool is_file = std::filesystem::is_regular_file(options.network);
  const std::string& file = is_file ? options.network : options.topology;
  if (file.empty()) {
    const Fabric fabric = fabric_of(options);
    return {fabric_times(fabric, options.algorithm), fabric.ranks(), 1};
  }
  const Cluster cluster = value_or_throw(read_cluster(file));
  const JobTopology job = job_of(cluster, topology_of(cluster));
  return {measured_times(job, options.algorithm), job.topology.ranks(),
          codec_slowdown(job.topology)};
}

LayerProfile profile_of(const SimulateOptions& options) {
  const auto built_in = profile_names();
  const bool known = std::ranges::find(built_in, options.profile) != built_in.end();
  if (known || std::filesystem::exists(options.profile)) return profile_named(options.profile);
  LayerProfile profile = profile_of(model_named(options.profile));
  normalize_shares(profile);
  return profile;
}

SimulatedStep simulate(const SimulateOptions& options, const LayerProfile& profile,
                       const SimulatedLinks& links) {
  const StepModel model = step_model_of(options, profile);
  const ExchangeModel exchange = exchange_of(options, links);
  StepPlanOptions how = plan_options_of(options);
  how.compress = exchange.codec != "none";
  const StepPlan plan = model.local_steps ? plan_local_steps(profile, options.fragments, how)
                                          : plan_step(profile, how);
  return simulate_step(profile, plan, model, exchange);
}

StepModel step_model_of(const SimulateOptions& options, const LayerProfile& profile) {
  StepModel model{.compute = 1e-3 * options.compute_ms,
                  .accumulate = options.accumulate,
                  .slowest_host = 1 / options.slow_host,
                  .update = 1e-3 * options.update_ms};
  if (options.compute_ms <= 0)
    model.compute = std::chrono::duration<double>(profile.compute).count();
  if (model.compute <= 0) {
    refuse(
        fmt::format("--compute-ms is missing: the profile {} does not record the time of a forward "
                    "and backward pass",
                    profile.name));
  }
  const auto overlap = overlap_named(options.overlap);
  if (!overlap) refuse(unknown_name("overlap", options.overlap, kOverlapNames));
  model.policy.overlap = *overlap;
  const LocalStepsConfig local{.steps = options.local_steps,
                               .fragments = options.fragments,
                               .overlap_steps = options.overlap_steps,
                               .codec = options.codec};
  check_local_steps(local);
  if (options.local_steps > 1) model.local_steps.emplace(local);
  return model;
}

StepPlanOptions plan_options_of(const SimulateOptions& options) {
  StepPlanOptions plan;
  plan.limits = {.first_bytes = bytes_of("--first-bucket", options.first_bucket),
                 .bytes = bytes_of("--bucket", options.bucket),
                 .last_bytes = bytes_of("--last-bucket", options.last_bucket)};
  plan.partition_bytes = bytes_of("--partition", options.partition);
  return plan;
}

ExchangeModel exchange_of(const SimulateOptions& options, const SimulatedLinks& links) {
  ExchangeModel exchange{.ranks = links.ranks, .times = links.times, .codec = options.codec};
  exchange.codec_slowdown = links.codec_slowdown;
  exchange.piece_elements = bytes_of("--piece", options.piece) / sizeof(float);
  if (exchange.piece_elements == 0) refuse("--piece: expected at least 4 bytes");
  if (options.codec_speeds.empty()) return exchange;
  const auto speeds =
      parse_codec_speeds(value_or_throw(read_file(options.codec_speeds)), options.codec_speeds);
  if (const auto speed = speeds.find(options.codec); speed != speeds.end())
    exchange.speed = speed->second;
  return exchange;
}

}  // namespace gradwire
