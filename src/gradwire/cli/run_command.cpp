#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <sstream>

#include <CLI/CLI.hpp>
#include <fmt/format.h>
#include <sys/stat.h>

#include "gradwire/base/error.h"
#include "gradwire/cli/command_line.h"
#include "gradwire/cli/commands.h"
#include "gradwire/cli/launch/launch.h"

namespace gradwire {
namespace {

constexpr const char* kAbout = R"(gradwire run [OPTIONS] [--] PROGRAM [ARGUMENTS]
starts PROGRAM as the ranks of a job and waits for them.

Each rank finds RANK, WORLD_SIZE, LOCAL_RANK, LOCAL_WORLD_SIZE, MASTER_ADDR, MASTER_PORT (a
free port) and GRADWIRE_SECRET (a new one unless it is set already) in its environment, and reads
/dev/null. OMP_NUM_THREADS, unless it is set, is the number of cores divided by the ranks of the
host. What ranks write comes in whole lines with "[rank] " before each.

When a rank fails, the others get SIGTERM and, after the grace period, SIGKILL; the exit status is
that of the first rank that failed (128 + signal if by a signal). SIGINT, SIGTERM, SIGHUP and
SIGQUIT are passed on and start the grace period too; a second SIGINT kills at once. SIGUSR1 and
SIGUSR2 are passed on. No process of the job is left at the end.)";

/// The command line as it is written.
struct Given {
  int ranks = 0;
  std::string hosts, hostfile, rsh = "ssh", master_address, interface, secret_file;
  int master_port = 0;
  bool no_prefix = false;
  double grace = 5;
  std::vector<std::string> variables, program;
};

void declare(CLI::App& app, Given& given) {
  app.name("gradwire run");
  app.add_option("-n,--ranks", given.ranks,
                 "How many ranks; by default one for each slot of the hosts, or for each core of "
                 "this one")
      ->check(CLI::Range(1, kMaxRanks));
  auto* hosts = app.add_option("--hosts", given.hosts,
                               "Where to run: a,b (ranks are spread evenly) or a:2,b:2 (slots)");
  app.add_option("--hostfile", given.hostfile,
                 "File with a host a line: NAME [slots=N] [address=A]; # begins a comment")
      ->excludes(hosts);
  app.add_option("--rsh", given.rsh,
                 "Command that runs another on a host: RSH HOST COMMAND, with our standard input; "
                 "such as ssh, \"ssh -p 2222\", \"ip netns exec\"")
      ->capture_default_str();
  app.add_option("--master-addr", given.master_address,
                 "Where rank 0 listens; by default the first host's name or address");
  app.add_option("--master-port", given.master_port, "Its port; by default a free one")
      ->check(CLI::Range(1, 65535));
  app.add_option("--interface", given.interface,
                 "Network interfaces to use: names, prefixes or a comma list");
  app.add_option("--secret-file", given.secret_file,
                 "File with the job's secret, not readable by others; by default a new secret");
  app.add_option("--env", given.variables,
                 "NAME=VALUE, or NAME for its value here: a variable for ranks on all hosts; may "
                 "be repeated (GRADWIRE_* go to all hosts by themselves)")
      ->expected(1)
      ->multi_option_policy(CLI::MultiOptionPolicy::TakeAll);
  app.add_flag("--no-prefix", given.no_prefix, "Pass on what ranks write as it is");
  app.add_option("--grace", given.grace, "Seconds between SIGTERM and SIGKILL")
      ->capture_default_str()
      ->check(CLI::Range(0.0, 1e6));
  app.prefix_command();
}

[[noreturn]] void refuse(const std::string& message) {
  throw Exception(ErrorKind::invalid_argument, message);
}

std::string content_of(const std::string& option, const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  std::ostringstream content;
  content << file.rdbuf();
  if (!file || std::filesystem::is_directory(path))
    refuse(fmt::format("{} {}: cannot read the file", option, path));
  return content.str();
}

std::string read_secret(const std::string& path) {
  std::string secret = content_of("--secret-file", path);
  while (!secret.empty() && std::isspace(static_cast<unsigned char>(secret.back()))) {
    secret.pop_back();
  }
  struct stat info {};
  if (::stat(path.c_str(), &info) == 0 && (info.st_mode & 007) != 0) {
    refuse(fmt::format("--secret-file {}: everybody can read it: chmod 600 it", path));
  }
  if (secret.empty()) refuse(fmt::format("--secret-file {}: the file is empty", path));
  return secret;
}

bool is_name(const std::string& text) {
  const auto fits = [](unsigned char c) { return std::isalnum(c) || c == '_'; };
  return !text.empty() && std::all_of(text.begin(), text.end(), fits) &&
         !std::isdigit(static_cast<unsigned char>(text.front()));
}

std::pair<std::string, std::string> parse_variable(const std::string& text) {
  const std::size_t equals = text.find('=');
  const std::string name = text.substr(0, equals);
  if (!is_name(name)) refuse(fmt::format("--env {}: \"{}\" is not a variable's name", text, name));
  if (equals != std::string::npos) return {name, text.substr(equals + 1)};
  const char* value = std::getenv(name.c_str());
  if (!value) refuse(fmt::format("--env {}: it is not set here: write --env {}=VALUE", text, name));
  return {name, value};
}

std::vector<std::string> words_of(const std::string& text) {
  std::istringstream stream(text);
  return {std::istream_iterator<std::string>(stream), {}};
}

LaunchOptions options_of(const Given& given) {
  LaunchOptions options;
  options.program = given.program;
  if (given.ranks > 0) options.ranks = given.ranks;
  if (!given.hosts.empty()) options.hosts = parse_hosts(given.hosts);
  if (!given.hostfile.empty()) {
    options.hosts = parse_hostfile(content_of("--hostfile", given.hostfile), given.hostfile);
  }
  options.rsh = words_of(given.rsh);
  if (options.rsh.empty()) refuse("--rsh: expected a command such as ssh");
  options.master_address = given.master_address;
  if (given.master_port > 0) options.master_port = static_cast<std::uint16_t>(given.master_port);
  options.interface = given.interface;
  if (!given.secret_file.empty()) options.secret = read_secret(given.secret_file);
  for (const std::string& text : given.variables) {
    options.variables.push_back(parse_variable(text));
  }
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
    fmt::print(stderr, "gradwire run: which program? gradwire run -n 4 -- PROGRAM [ARGUMENTS]\n");
    return 2;
  }
  if (given.program.front().starts_with('-')) {
    fmt::print(stderr, "gradwire run: unknown option {} (see gradwire run --help)\n",
               given.program.front());
    return 2;
  }
  return launch(options_of(given));
}

}  // namespace gradwire
