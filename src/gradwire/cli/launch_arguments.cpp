#include "gradwire/cli/launch_arguments.h"

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <sstream>

#include <fmt/format.h>

#include "gradwire/base/refuse.h"
#include "gradwire/cli/launch/hosts.h"
#include "gradwire/cli/launch/placement.h"
#include "gradwire/cli/launch/secret_file.h"

namespace gradwire {
namespace {

std::string content_of(const std::string& option, const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  std::ostringstream content;
  content << file.rdbuf();
  if (!file || std::filesystem::is_directory(path))
    refuse(fmt::format("{} {}: cannot read the file", option, path));
  return content.str();
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

void declare_places(CLI::App& app, LaunchArguments& given) {
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
}

void declare_network(CLI::App& app, LaunchArguments& given) {
  app.add_option("--master-addr", given.master_address,
                 "Where rank 0 listens; by default the first host's name or address");
  app.add_option("--master-port", given.master_port,
                 "Its port; by default that of --port, or else a free one")
      ->check(CLI::Range(1, 65535));
  app.add_option("--port", given.port,
                 "One port for all that ranks listen on, the same on every host, for firewalls to "
                 "open; by default free ones")
      ->check(CLI::Range(1, 65535));
  app.add_option("--interface", given.interface,
                 "Network interfaces to use, all of them at once: names, prefixes or a comma list");
  app.add_flag("--encrypt", given.encrypt,
               "Encrypt what ranks send each other over the network (GRADWIRE_ENCRYPTION=on)");
}

void declare_settings(CLI::App& app, LaunchArguments& given) {
  app.add_option(
      "--secret-file", given.secret_file,
      "File with the job's secret, of this user alone (mode 600); by default a new secret");
  app.add_option("--env", given.variables,
                 "NAME=VALUE, or NAME for its value here: a variable for ranks on all hosts; may "
                 "be repeated (GRADWIRE_* go to all hosts by themselves)")
      ->allow_extra_args(false);  // What follows NAME is the program.
}

std::optional<std::uint16_t> port_of(int given) {
  if (given == 0) return std::nullopt;
  return static_cast<std::uint16_t>(given);
}

}  // namespace

void declare_launch_arguments(CLI::App& app, LaunchArguments& given) {
  declare_places(app, given);
  declare_network(app, given);
  declare_settings(app, given);
}

void check_fits(const LaunchArguments& given, const Job& job) {
  if (job.launcher == "none" || (given.ranks == 0 && given.hosts.empty())) return;
  const std::optional<int> ranks = given.ranks > 0 ? std::optional(given.ranks) : std::nullopt;
  const std::size_t asked = given.hosts.empty()
                                ? static_cast<std::size_t>(given.ranks)
                                : place_ranks(parse_hosts(given.hosts), ranks).size();
  if (asked == static_cast<std::size_t>(job.world_size)) return;
  refuse(
      fmt::format("{} asks for {} ranks, but this process is already rank {} of a job of {} ranks "
                  "(started by {}), and no rank starts others: leave {} away, or start this "
                  "command outside the job",
                  given.ranks > 0 ? "-n" : "--hosts", asked, job.rank, job.world_size, job.launcher,
                  given.ranks > 0 ? "-n" : "--hosts"));
}

int ranks_to_start(const LaunchArguments& given) {
  const LaunchOptions launch = launch_options_of(given);
  if (launch.hosts.empty()) return launch.ranks.value_or(1);
  return static_cast<int>(place_ranks(launch.hosts, launch.ranks).size());
}

void declare_start_timeout(CLI::App& app, LaunchArguments& given) {
  app.add_option("--start-timeout", given.start_timeout,
                 "Seconds for the remote shells to have started their ranks")
      ->capture_default_str()
      ->check(CLI::Range(0.1, 1e6));
}

LaunchOptions launch_options_of(const LaunchArguments& given) {
  LaunchOptions options;
  if (given.ranks > 0) options.ranks = given.ranks;
  if (!given.hosts.empty()) options.hosts = parse_hosts(given.hosts);
  if (!given.hostfile.empty()) {
    options.hosts = parse_hostfile(content_of("--hostfile", given.hostfile), given.hostfile);
  }
  options.rsh = words_of(given.rsh);
  options.start_timeout =
      std::chrono::duration_cast<Duration>(std::chrono::duration<double>(given.start_timeout));
  if (options.rsh.empty()) refuse("--rsh: expected a command such as ssh");
  options.master_address = given.master_address;
  options.master_port = port_of(given.master_port);
  options.port = port_of(given.port);
  options.interface = given.interface;
  if (!given.secret_file.empty()) options.secret = read_secret_file(given.secret_file);
  if (given.encrypt) options.variables.emplace_back("GRADWIRE_ENCRYPTION", "on");
  for (const std::string& text : given.variables) {
    options.variables.push_back(parse_variable(text));
  }
  return options;
}

}  // namespace gradwire
