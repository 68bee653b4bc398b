#include "gradwire/cli/plan/simulate_options.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <filesystem>

#include <fmt/format.h>

#include "gradwire/base/clock.h"
#include "gradwire/base/file.h"
#include "gradwire/base/refuse.h"
#include "gradwire/base/suggest.h"
#include "gradwire/cli/worker_speeds.h"
#include "gradwire/federated/simulated_rounds.h"
#include "gradwire/plan/model.h"
#include "gradwire/plan/network.h"
#include "gradwire/plan/servers_advice.h"
#include "gradwire/plan/strategy.h"
#include "gradwire/servers/server_policy.h"
#include "gradwire/topology/topology_file.h"
#include "gradwire/workload/profiles.h"

namespace gradwire::cli {
namespace {

std::size_t bytes_of(const char* option, const std::string& text) {
  const auto bytes = parse_bytes(text);
  if (!bytes) refuse("{}: {}", option, bytes.error().message);
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

plan::Fabric fabric_of(const SimulateOptions& options) {
  const plan::Network network = plan::network_named(options.network);
  plan::Fabric fabric{.hosts = options.nodes, .ranks_per_host = options.per_node};
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
  if (fabric.ranks() > 16384) refuse("{} ranks: at most 16384 can be simulated", fabric.ranks());
  return fabric;
}

SimulatedLinks links_of(const SimulateOptions& options) {
  const bool is_file = std::filesystem::is_regular_file(options.network);
  const std::string& file = is_file ? options.network : options.topology;
  if (file.empty()) {
    const plan::Fabric fabric = fabric_of(options);
    return {plan::fabric_times(fabric, options.algorithm), fabric.ranks(), 1};
  }
  const topology::Cluster cluster = value_or_throw(topology::read_cluster(file));
  const topology::JobTopology job = topology::job_of(cluster, topology_of(cluster));
  return {plan::measured_times(job, options.algorithm), job.topology.ranks(),
          plan::codec_slowdown(job.topology)};
}

workload::LayerProfile profile_of(const SimulateOptions& options) {
  const auto built_in = workload::profile_names();
  const bool known = std::ranges::find(built_in, options.profile) != built_in.end() ||
                     options.profile.starts_with("uniform:");
  if (known || std::filesystem::exists(options.profile))
    return workload::profile_named(options.profile);
  workload::LayerProfile profile = profile_of(plan::model_named(options.profile));
  workload::normalize_shares(profile);
  return profile;
}

plan::SimulatedStep simulate(const SimulateOptions& options, const workload::LayerProfile& profile,
                             const SimulatedLinks& links) {
  const plan::StepModel model = step_model_of(options, profile);
  const plan::ExchangeModel exchange = exchange_of(options, links);
  step::StepPlanOptions how = plan_options_of(options);
  how.compress = exchange.codec != "none";
  const step::StepPlan plan = model.local_steps
                                  ? step::plan_local_steps(profile, options.fragments, how)
                                  : step::plan_step(profile, how);
  return plan::simulate_step(profile, plan, model, exchange);
}

plan::StepModel step_model_of(const SimulateOptions& options,
                              const workload::LayerProfile& profile) {
  plan::StepModel model{.compute = 1e-3 * options.compute_ms,
                        .accumulate = options.accumulate,
                        .slowest_host = 1 / options.slow_host,
                        .update = 1e-3 * options.update_ms};
  if (options.compute_ms <= 0)
    model.compute = std::chrono::duration<double>(profile.compute).count();
  if (model.compute <= 0) {
    refuse(
        "--compute-ms is missing: the profile {} does not record the time of a forward "
        "and backward pass",
        profile.name);
  }
  const auto overlap = step::overlap_named(options.overlap);
  if (!overlap) refuse(unknown_name("overlap", options.overlap, step::kOverlapNames));
  model.policy.overlap = *overlap;
  const step::LocalStepsConfig local{.steps = options.local_steps,
                                     .fragments = options.fragments,
                                     .overlap_steps = options.overlap_steps,
                                     .codec = options.codec};
  step::check_local_steps(local);
  if (options.local_steps > 1) model.local_steps.emplace(local);
  return model;
}

step::StepPlanOptions plan_options_of(const SimulateOptions& options) {
  step::StepPlanOptions plan;
  plan.limits = {.first_bytes = bytes_of("--first-bucket", options.first_bucket),
                 .bytes = bytes_of("--bucket", options.bucket),
                 .last_bytes = bytes_of("--last-bucket", options.last_bucket)};
  plan.partition_bytes = bytes_of("--partition", options.partition);
  return plan;
}

plan::ExchangeModel exchange_of(const SimulateOptions& options, const SimulatedLinks& links) {
  plan::ExchangeModel exchange{.ranks = links.ranks, .times = links.times, .codec = options.codec};
  exchange.codec_slowdown = links.codec_slowdown;
  exchange.piece_elements = bytes_of("--piece", options.piece) / sizeof(float);
  if (exchange.piece_elements == 0) refuse("--piece: expected at least 4 bytes");
  if (options.codec_speeds.empty()) return exchange;
  const auto speeds = plan::parse_codec_speeds(value_or_throw(read_file(options.codec_speeds)),
                                               options.codec_speeds);
  if (const auto speed = speeds.find(options.codec); speed != speeds.end())
    exchange.speed = speed->second;
  return exchange;
}

void declare(CLI::App& app, RoundOptions& options) {
  CLI::Option* const servers =
      app.add_option("--servers", options.servers, "parameter servers, in place of all-reduces")
          ->check(CLI::Range(0, 16384));
  auto* mode =
      app.add_option(
             "--mode", options.mode,
             "with --servers: sync, ssp:S (no worker begins a step before all have finished "
             "the one S + 1 before it), or async (no worker waits)")
          ->needs(servers)
          ->capture_default_str();
  app.add_flag("--asynchronous", options.asynchronous, "the same as --mode async")
      ->excludes(mode)
      ->needs(servers);
  app.add_option("--use", options.use,
                 "with --mode sync: share of the workers whose gradients make a step, the first to "
                 "arrive; the others are dropped")
      ->check(CLI::Range(0.0, 1.0))
      ->needs(servers)
      ->capture_default_str();
  app.add_option("--groups", options.groups.count,
                 "with --mode ssp and async: number of groups of workers, which are synchronous "
                 "within; 0: each worker is one")
      ->check(CLI::Range(0, 16384))
      ->needs(servers)
      ->capture_default_str();
  app.add_option("--pull-every", options.pull_every,
                 "with --mode ssp and async: steps from one pull of the parameters to the next")
      ->check(CLI::Range(1, 10000))
      ->needs(servers)
      ->capture_default_str();
  app.add_option("--pull-codec", options.pull_codec,
                 "with --servers: codec of the parameters that workers pull; --codec is that of "
                 "the gradients that they push")
      ->check(CLI::IsMember({"none", "bf16"}))
      ->needs(servers)
      ->capture_default_str();
  app.add_option("--clients", options.clients, "federated learning: clients that could participate")
      ->check(CLI::Range(0, 1'000'000));
  app.add_option("--asked", options.asked, "clients asked in each round")
      ->check(CLI::Range(1, 1'000'000))
      ->capture_default_str();
  app.add_option("--used", options.used, "answers used in each round, the first to arrive")
      ->check(CLI::Range(1, 1'000'000))
      ->capture_default_str();
  app.add_option("--window-s", options.window_s, "seconds after which a round ends")
      ->check(CLI::PositiveNumber)
      ->capture_default_str();
  app.add_option("--dropout", options.dropout, "share of the asked clients that never answer")
      ->check(CLI::Range(0.0, 1.0));
  app.add_option("--up", options.up, "median uplink rate of a client")->capture_default_str();
  app.add_option("--down", options.down, "median downlink rate of a client")->capture_default_str();
  declare_slow(app, options.slow, "with --servers").needs(app.get_option("--servers"));
  app.add_option(
         "--spread", options.spread,
         "standard deviation of the logarithms of workers' or clients' times and rates; or, "
         "of workers' times, none or exponential, as in gradwire bench step")
      ->check(CLI::Range(0.0, 5.0) | CLI::IsMember({"none", "exponential"}))
      ->capture_default_str();
  app.add_option("--rounds", options.steps, "number of rounds to simulate")
      ->check(CLI::Range(1, 100000))
      ->capture_default_str();
  app.add_option("--seed", options.seed)->capture_default_str();
}

namespace {

double log_spread_of(const RoundOptions& options) {
  const bool is_named = options.spread == "none" || options.spread == "exponential";
  return is_named ? 0 : std::stod(options.spread);
}

}  // namespace

namespace {

/// Options of a step that are not of one with servers.
constexpr std::array kNotModelled{
    "--topology",   "--slow-host", "--slow-port",    "--rack",          "--oversubscription",
    "--collective", "--algorithm", "--update-ms",    "--codec-speeds",  "--accumulate",
    "--overlap",    "--bucket",    "--first-bucket", "--local-steps",   "--fragments",
    "--piece",      "--partition", "--last-bucket",  "--overlap-steps", "--failures-per-day",
};

servers::ServerPolicy policy_of(const RoundOptions& options, int workers) {
  servers::ServerPolicy policy{.use = options.use};
  servers::set_mode(policy, options.asynchronous ? "async" : options.mode);
  policy.workers = workers / servers::workers_per_group(options.groups, workers, policy.mode);
  if (options.pull_every > 1 && policy.mode == servers::Mode::sync) {
    refuse("--pull-every {} requires --mode ssp or async: in mode sync each step pulls",
           options.pull_every);
  }
  return policy;
}

plan::ServerModel server_model_of(const SimulateOptions& step, const RoundOptions& options,
                                  const workload::LayerProfile& profile) {
  const plan::Fabric fabric = fabric_of(step);
  plan::ServerModel model{.policy = policy_of(options, fabric.ranks()),
                          .servers = options.servers,
                          .pull_every = options.pull_every};
  model.members = fabric.ranks() / model.policy.workers;
  const auto parameters = static_cast<double>(profile.parameters());
  model.bytes = parameters * plan::wire_bytes(step.codec, 1).contribution;
  model.pull_bytes = parameters * plan::wire_bytes(options.pull_codec, 1).contribution;
  model.worker_rate = fabric.port.bytes_per_second / fabric.ranks_per_host;
  model.server_rate = fabric.port.bytes_per_second;
  model.latency = std::chrono::duration<double>(fabric.port.latency).count();
  model.inside = plan::inside_of_group(model.members, parameters * sizeof(float), model.worker_rate,
                                       model.latency);
  model.compute = {step_model_of(step, profile).compute, log_spread_of(options)};
  model.times = {slow_workers(options.slow), options.spread == "exponential"};
  return model;
}

/// "8 workers", or "2 groups of 4 workers".
std::string workers_text(const plan::ServerModel& model) {
  if (model.members == 1) return fmt::format("{} workers", model.policy.workers);
  return fmt::format("{} groups of {} workers", model.policy.workers, model.members);
}

}  // namespace

void check_modelled(const CLI::App& app, const RoundOptions& options) {
  if (options.servers == 0 || options.clients > 0) return;
  for (const char* option : kNotModelled) {
    if (app.count(option) == 0) continue;
    refuse(
        "{} is not modelled with --servers: equal ports, workers that push the whole model after a "
        "pass and wait for it, and servers that compute in no time; leave it out",
        option);
  }
}

RoundResult simulate_server_rounds(const SimulateOptions& step, const RoundOptions& options) {
  const workload::LayerProfile profile = profile_of(step);
  const plan::ServerModel model = server_model_of(step, options, profile);
  const plan::ServerTraining found = plan::simulate_servers(model, options.steps, options.seed);
  const std::string mode = servers::mode_text(model.policy);
  const std::string advice = plan::advice_on_slow_worker(model.policy, model.times, model.members);
  return {{{"workers", model.policy.workers * model.members},
           {"groups", model.policy.workers},
           {"servers", model.servers},
           {"asynchronous", model.policy.mode == servers::Mode::async},
           {"mode", mode},
           {"step_ms", 1e3 * found.step},
           {"updates_per_second", found.updates_per_second},
           {"late", found.late},
           {"staleness", found.staleness},
           {"staleness_p99", found.staleness_p99},
           {"largest_staleness", found.max_staleness},
           {"server_busy", found.server_busy},
           {"eta", model.compute.median / found.step},
           {"advice", advice}},
          fmt::format(
              "{}, {} servers, {}: {:.1f} ms per step, {:.1f} updates per second, mean "
              "staleness {:.1f} updates, 99th percentile {}, maximum {}; {:.1f} % of the gradients "
              "are late; servers receive {:.0f} % of the time\n{}",
              workers_text(model), model.servers, mode, 1e3 * found.step, found.updates_per_second,
              found.staleness, found.staleness_p99, found.max_staleness, 100 * found.late,
              100 * found.server_busy, advice.empty() ? "" : "Advice: " + advice + "\n")};
}

namespace {

federated::SimulatedRounds federated_rounds(const SimulateOptions& step,
                                            const RoundOptions& options) {
  const workload::LayerProfile profile = profile_of(step);
  if (options.spread == "exponential") refuse("--spread exponential requires --servers");
  const double spread = log_spread_of(options);
  const double bytes = static_cast<double>(profile.parameters() * sizeof(float));
  const federated::DeviceModel devices{.compute = {step_model_of(step, profile).compute, spread},
                                       .up = {value_or_throw(parse_rate(options.up)), spread},
                                       .down = {value_or_throw(parse_rate(options.down)), spread},
                                       .drop = options.dropout};
  const federated::SimulatedWork work{.partial = federated::Partial::drop,
                                      .model_bytes = bytes,
                                      .update_bytes = [bytes](int) { return bytes; },
                                      .server_rate = fabric_of(step).port.bytes_per_second};
  const Duration window = duration_of(options.window_s);
  const int asked = std::min(options.asked, options.clients);
  const federated::RoundPolicy policy{.ask = asked,
                                      .use = std::min(options.used, asked),
                                      .least = 1,
                                      .window = window,
                                      .exchange = window};
  const std::vector<std::int64_t> samples(static_cast<std::size_t>(options.clients), 1);
  return {policy, {devices, samples, options.seed}, work, options.seed};
}

}  // namespace

RoundResult simulate_federated_rounds(const SimulateOptions& step, const RoundOptions& options) {
  federated::SimulatedRounds rounds = federated_rounds(step, options);
  federated::NoUpdates none;
  double time = 0, used = 0, asked = 0, short_rounds = 0;
  for (int i = 0; i < options.steps; ++i) {
    const federated::RoundRecord& record = rounds.next(none).record();
    time += seconds(record.ended - record.began);
    asked += record.asked;
    used += record.used;
    short_rounds += record.used < std::min(options.used, record.asked);
  }
  double bytes = 0;
  for (const federated::ClientRecord& one : rounds.records())
    bytes += one.up_bytes + one.down_bytes;
  const double count = options.steps, wasted = asked > 0 ? 1 - used / asked : 0;
  const double fairness = federated::jain_index(rounds.records());
  const auto asked_each = static_cast<int>(std::lround(asked / count));
  return {{{"clients", options.clients},
           {"asked", asked_each},
           {"round_s", time / count},
           {"used", used / count},
           {"wasted_share", wasted},
           {"short_rounds", short_rounds / count},
           {"server_bytes", bytes / count},
           {"fairness", fairness}},
          fmt::format("{} of {} clients asked: a round takes {:.1f} s and uses {:.1f} updates, "
                      "{:.1f} % of the clients' work is wasted, {:.0f} % of the rounds use fewer "
                      "than {}; fairness {:.2f}\n",
                      asked_each, options.clients, time / count, used / count, 100 * wasted,
                      100 * short_rounds / count, std::min(options.used, asked_each), fairness)};
}

}  // namespace gradwire::cli
