#include <algorithm>

#include <CLI/CLI.hpp>
#include <fmt/format.h>

#include "gradwire/cli/command_line.h"
#include "gradwire/cli/commands.h"
#include "gradwire/cli/launch/launch_arguments.h"

namespace gradwire::cli {
namespace {

constexpr const char* kAbout = R"(gradwire run [OPTIONS] [--] PROGRAM [ARGUMENTS]
starts PROGRAM as the ranks of a job and waits for them. A PROGRAM that ends in .py, and one called
python or python3, runs in the first Python of this PATH, at that path on every host.

Each rank has RANK, WORLD_SIZE, LOCAL_RANK, LOCAL_WORLD_SIZE, MASTER_ADDR, MASTER_PORT (by default a
free port) and GRADWIRE_SECRET (generated unless it is set) in its environment, and /dev/null as
standard input. OMP_NUM_THREADS, unless it is set, is the number of cores divided by the ranks of
the host. Output of the ranks is passed on in whole lines, prefixed with "[rank] ".

When a rank fails, the others get SIGTERM and, after the grace period, SIGKILL. The exit status is
that of the first rank that failed (128 + signal if it was killed by a signal). SIGINT, SIGTERM,
SIGHUP and SIGQUIT are passed on and start the grace period, too; a second SIGINT kills at once.
SIGUSR1 and SIGUSR2 are passed on. No process of the job is left at the end.

With --servers K the last K ranks are parameter servers. They run the same PROGRAM, and have
GRADWIRE_ROLE server instead of worker; RANK and WORLD_SIZE count the ranks of each role.)";

/// The command line, unparsed.
struct Given {
  LaunchArguments launch;
  bool no_prefix = false;
  double grace = 5;
  std::vector<std::string> program;
};

void declare(CLI::App& app, Given& given) {
  app.name("gradwire run");
  declare_launch_arguments(app, given.launch);
  declare_engine(app, given.launch);
  declare_servers(app, given.launch);
  declare_start_timeout(app, given.launch);
  app.add_flag("--no-prefix", given.no_prefix, "Pass on the ranks' output unchanged");
  app.add_option("--grace", given.grace, "Seconds between SIGTERM and SIGKILL")
      ->capture_default_str()
      ->check(CLI::Range(0.0, 1e6));
  app.prefix_command();
}

LaunchOptions options_of(const Given& given) {
  LaunchOptions options = launch_options_of(given.launch);
  // A PATH that --env gives to the ranks decides there.
  const bool own_path = std::ranges::any_of(
      options.variables, [](const auto& variable) { return variable.first == "PATH"; });
  options.program =
      own_path ? given.program : with_interpreter(given.program, own_variables()["PATH"]);
  if (given.no_prefix) options.output = RankOutput::unchanged;
  options.grace = std::chrono::duration_cast<Duration>(std::chrono::duration<double>(given.grace));
  return options;
}

std::vector<std::string> program_of(const CLI::App& app) {
  std::vector<std::string> program = app.remaining();
  if (!program.empty() && program.front() == "--") program.erase(program.begin());
  return program;
}

}  // namespace

int run_command(int argc, char** argv) {
  CLI::App app{kAbout};
  Given given;
  declare(app, given);
  if (const auto status = parse_command_line(app, argc, argv)) return *status;
  given.program = program_of(app);
  if (given.program.empty()) {
    fmt::print(stderr,
               "gradwire run: no program given: gradwire run -n 4 -- PROGRAM [ARGUMENTS]\n");
    return 2;
  }
  if (given.program.front().starts_with('-')) {
    return report_unexpected(app, given.program);
  }
  return launch(read_arguments([&] { return options_of(given); }));
}

}  // namespace gradwire::cli
