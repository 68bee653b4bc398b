#pragma once

#include <string>
#include <vector>

#include <CLI/CLI.hpp>

#include "gradwire/bootstrap/job.h"
#include "gradwire/cli/launch/launch.h"

namespace gradwire::cli {

/// The options, unparsed, of every command that starts ranks: number of ranks, hosts, network.
struct LaunchArguments {
  int ranks = 0;
  std::string hosts, hostfile, rsh = "ssh", master_address, interface, secret_file;
  std::string engine, mpirun = "mpirun";
  int master_port = 0;
  int port = 0;
  int servers = 0;
  bool encrypt = false;
  double start_timeout = 30;
  std::vector<std::string> variables;

  /// Returns true if the options ask this process to start ranks, and it is not a rank of `job`
  /// itself. A job of one rank is left over in the environment, or is an interactive shell of
  /// Slurm, if more ranks are asked for. Throws as ranks_to_start().
  bool starts_ranks(const bootstrap::Job& job) const;
};

/// Adds the options to a command's. `given` must outlive `app`.
void declare_launch_arguments(CLI::App& app, LaunchArguments& given);

/// Adds --engine and --mpirun, of commands whose ranks may communicate by another engine. --engine
/// sets GRADWIRE_ENGINE of this process, for its own communicators and for the ranks it starts.
/// `measures_backends`: the command takes backends of torch.distributed too.
void declare_engine(CLI::App& app, LaunchArguments& given, bool measures_backends = false);

/// Throws Exception(invalid_argument) if this process is already a rank of `job` and the options
/// ask for another number of ranks than the job has. A rank does not start ranks.
void check_fits(const LaunchArguments& given, const bootstrap::Job& job);

/// Returns the number of ranks that the options ask for. Throws Exception(invalid_argument).
int ranks_to_start(const LaunchArguments& given);

/// Adds --servers, an option of `gradwire run` and `gradwire train` only.
void declare_servers(CLI::App& app, LaunchArguments& given);

/// Adds --start-timeout, an option of `gradwire run` only; other commands use its default.
void declare_start_timeout(CLI::App& app, LaunchArguments& given);

/// Converts the options; the caller sets program, output and name. Reads the hostfile and the
/// secret's file. Throws Exception(invalid_argument) that names the option.
LaunchOptions launch_options_of(const LaunchArguments& given);

/// Starts `ranks` processes of the running executable on this host as the ranks of a job and waits
/// for them; for commands with an option -n. `arguments`: everything after the program's name; with
/// them the ranks must not start ranks themselves (they see WORLD_SIZE set). Rank 0 writes directly
/// to the terminal, so that progress lines and tables look as if it ran alone; lines of other ranks
/// are prefixed with "[rank] ". Otherwise as launch(), including the result. `name` begins the
/// launcher's own messages ("gradwire bench").
int run_self(const std::vector<std::string>& arguments, int ranks,
             const std::string& name = "gradwire");

/// The overload above, with placement and network from `options`; this executable must be at the
/// same path on every host. Overwrites the program and output of `options`.
int run_self(const std::vector<std::string>& arguments, LaunchOptions options);

}  // namespace gradwire::cli
