#pragma once

#include <string>
#include <vector>

#include <CLI/CLI.hpp>

#include "gradwire/cli/launch/launch.h"
#include "gradwire/comm/job.h"

namespace gradwire {

/// The options of every command that starts ranks, as they are written: how many, where, and over
/// which network.
struct LaunchArguments {
  int ranks = 0;
  std::string hosts, hostfile, rsh = "ssh", master_address, interface, secret_file;
  int master_port = 0;
  int port = 0;
  bool encrypt = false;
  double start_timeout = 30;
  std::vector<std::string> variables;

  /// Whether they ask this process to start ranks, and it is not one of `job` itself.
  bool starts_ranks(const Job& job) const {
    const bool asked = ranks > 0 || !hosts.empty() || !hostfile.empty();
    return asked && job.launcher == "none";
  }
};

/// Adds them to a command's options. `given` must live as long as `app`.
void declare_launch_arguments(CLI::App& app, LaunchArguments& given);

/// Throws Exception(invalid_argument) if this process is a rank of `job` already and the options
/// ask for another number of ranks than that has: no rank starts ranks.
void check_fits(const LaunchArguments& given, const Job& job);

/// How many ranks they ask for. Throws Exception(invalid_argument).
int ranks_to_start(const LaunchArguments& given);

/// The option of `gradwire run` for shells that hang; the other commands have its default.
void declare_start_timeout(CLI::App& app, LaunchArguments& given);

/// What they ask for; the program, its output and its name are left to the caller. Reads the
/// hostfile and the secret's file. Throws Exception(invalid_argument) that names the option.
LaunchOptions launch_options_of(const LaunchArguments& given);

}  // namespace gradwire
