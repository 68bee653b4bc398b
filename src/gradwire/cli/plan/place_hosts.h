#pragma once

#include <string>
#include <vector>

#include <CLI/CLI.hpp>

#include "gradwire/plan/place/placed_hosts.h"

namespace gradwire::cli {

/// How hosts differ, unparsed: a value for each host.
struct HostArguments {
  std::vector<double> speeds;
  std::vector<std::string> memories, rates;
  std::string config;  ///< File for the configuration of the pipeline.

  bool differ() const { return !speeds.empty() || !memories.empty() || !rates.empty(); }
  /// Number of hosts of the lists; 0: none is given.
  std::size_t count() const;
};

/// Adds the options to a command line parser; `given` must outlive it.
void declare(CLI::App& app, HostArguments& given);

/// Returns the hosts of `input` with the given speeds, memories and rates. A link is as fast as the
/// slower of its two hosts. Throws Exception(invalid_argument) for lists of another length, and bad
/// values.
plan::HostLinks links_of(const HostArguments& given, const plan::PlanInput& input);

/// Stages, memory, step time, configuration, and the order of hosts for the launcher.
std::string hosts_text(const plan::PlacedHosts& placed);
/// The same as JSON (docs/plan.md has the keys).
std::string hosts_json(const plan::PlacedHosts& placed);
/// The configuration of `gradwire train`.
std::string hosts_config(const plan::PlacedHosts& placed);

}  // namespace gradwire::cli
