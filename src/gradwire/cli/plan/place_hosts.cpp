#include "gradwire/cli/plan/place_hosts.h"

#include <algorithm>
#include <cmath>

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <nlohmann/json.hpp>

#include "gradwire/base/refuse.h"
#include "gradwire/base/units.h"
#include "gradwire/plan/search.h"

namespace gradwire::cli {
namespace {

using Json = nlohmann::ordered_json;

std::string in_ms(double seconds) {
  return fmt::format("{:.4g} ms", 1e3 * seconds);
}

template <class Value>
void check_count(std::string_view option, const std::vector<Value>& values, std::size_t hosts) {
  if (values.empty() || values.size() == hosts) return;
  refuse("{} has {} values for {} hosts: expected one for each host", option, values.size(), hosts);
}

std::vector<std::string> names_of(const plan::PlacedHosts& placed) {
  std::vector<std::string> names;
  for (const plan::PlacementHost& host : placed.hosts) names.push_back(host.name);
  return names;
}

std::string stages_text(const plan::PlacedHosts& placed) {
  std::string text;
  std::size_t layer = 0;
  for (std::size_t stage = 0; stage < placed.cut.size(); ++stage) {
    const auto& layers = placed.input.model.layers;
    const pipeline::StageCosts& costs = placed.costs.stages[stage];
    const std::size_t end = layer + placed.cut[stage];
    text += fmt::format("  {}: {}, {} .. {}, {} a micro-batch, {:.3g} GB\n", stage,
                        placed.hosts[stage].name, layers[layer].name, layers[end - 1].name,
                        in_ms(costs.forward + costs.of(pipeline::Compute::backward)),
                        placed.memory_bytes[stage] / 1e9);
    layer = end;
    if (stage + 1 == placed.cut.size()) continue;
    text += fmt::format("     {} for a transfer\n", in_ms(placed.costs.transfers[stage]));
  }
  return text;
}

}  // namespace

std::size_t HostArguments::count() const {
  return std::max({speeds.size(), memories.size(), rates.size()});
}

void declare(CLI::App& app, HostArguments& given) {
  app.add_option("--speeds", given.speeds,
                 "hosts that differ: of each, its speed in multiples of --device, as in 1,0.5,1,1")
      ->delimiter(',')
      ->check(CLI::PositiveNumber);
  app.add_option("--memories", given.memories,
                 "hosts that differ: memory of each one's device, as in 24G,12G")
      ->delimiter(',');
  app.add_option("--rates", given.rates,
                 "hosts that differ: network of each, as in 10gbe,1gbe or 10Gb/s,1Gb/s")
      ->delimiter(',');
  app.add_option("--config", given.config,
                 "file for the configuration of gradwire train of the pipeline over the hosts");
}

plan::HostLinks links_of(const HostArguments& given, const plan::PlanInput& input) {
  plan::HostLinks links = plan::hosts_of(input);
  const std::size_t hosts = links.hosts.size();
  check_count("--speeds", given.speeds, hosts);
  check_count("--memories", given.memories, hosts);
  check_count("--rates", given.rates, hosts);
  for (std::size_t i = 0; i < given.speeds.size(); ++i) links.hosts[i].speed = given.speeds[i];
  for (std::size_t i = 0; i < given.memories.size(); ++i)
    links.hosts[i].memory_bytes =
        static_cast<double>(value_or_throw(parse_bytes(given.memories[i])));
  std::vector<double> rates;
  for (const std::string& rate : given.rates) {
    const plan::Network network = plan::network_named(rate);
    rates.push_back(network.goodput());
    links.latency = std::max(links.latency, network.latency);
  }
  for (std::size_t i = 0; i < rates.size(); ++i) {
    for (std::size_t j = 0; j < rates.size(); ++j)
      links.bytes_per_second[i * hosts + j] = std::min(rates[i], rates[j]);
  }
  return links;
}

std::string hosts_config(const plan::PlacedHosts& placed) {
  return plan::train_config(placed.input, {.cut = placed.cut, .costs = placed.costs});
}

std::string hosts_text(const plan::PlacedHosts& placed) {
  const plan::Strategy& s = placed.input.strategy;
  std::string text = fmt::format(
      "A pipeline of {} stages over the hosts ({}, {} micro-batches): {} a step, {:.4g} "
      "samples/s\n",
      s.pipeline, s.schedule, s.micro_batches, in_ms(placed.step), placed.samples_per_second);
  text += stages_text(placed);
  if (!placed.unused.empty())
    text += fmt::format("Not used, a step would take longer: {}\n", fmt::join(placed.unused, ", "));
  text += placed.even_step > 0
              ? fmt::format("Equal numbers of layers on the hosts as given: {} a step\n",
                            in_ms(placed.even_step))
              : "Equal numbers of layers on the hosts as given do not fit\n";
  if (s.compute != plan::ComputeType::fp32)
    text += "gradwire train computes pipelines in fp32: --precision fp32 plans that\n";
  return text + fmt::format("\ngradwire train pipeline.json --hosts {}, with pipeline.json:\n{}",
                            fmt::join(names_of(placed), ","), hosts_config(placed));
}

std::string hosts_json(const plan::PlacedHosts& placed) {
  const plan::Strategy& s = placed.input.strategy;
  return Json{{"hosts", names_of(placed)},
              {"unused", placed.unused},
              {"cut", placed.cut},
              {"schedule", s.schedule},
              {"micro_batches", s.micro_batches},
              {"step_ms", 1e3 * placed.step},
              {"even_step_ms", 1e3 * placed.even_step},
              {"samples_per_second", placed.samples_per_second},
              {"memory_bytes", placed.memory_bytes},
              {"config", Json::parse(hosts_config(placed))}}
      .dump();
}

}  // namespace gradwire::cli
