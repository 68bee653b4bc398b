#include "gradwire/cli/launch/launch_arguments.h"

#include <algorithm>
#include <cctype>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <sstream>
#include <utility>

#include "gradwire/base/file.h"
#include "gradwire/base/refuse.h"
#include "gradwire/bootstrap/engine_name.h"
#include "gradwire/bootstrap/servers_job.h"
#include "gradwire/cli/launch/hosts.h"
#include "gradwire/cli/launch/process.h"

namespace gradwire::cli {
namespace {

/// Maximum size of a secret, which is passed in an environment variable and keys a hash.
constexpr std::size_t kMaxBytes = 4096;

/// Returns the secret in the file of --secret-file, without trailing white space. Throws
/// Exception(invalid_argument), naming option and file, if there is no file, if other users can
/// access it (base/file.h), or if it is longer than the maximum.
std::string read_secret_file(const std::string& path) {
  const auto file = read_private_file(path, kMaxBytes + 1);
  if (!file) refuse("--secret-file {}: it {}", path, file.error().message);
  if (!file->exists) refuse("--secret-file {}: there is no such file", path);
  std::string secret = file->content;
  if (secret.size() > kMaxBytes) {
    refuse(
        "--secret-file {}: it has more than {} bytes; `openssl rand -hex 16` prints "
        "a secret",
        path, kMaxBytes);
  }
  while (!secret.empty() && std::isspace(static_cast<unsigned char>(secret.back()))) {
    secret.pop_back();
  }
  if (secret.empty()) refuse("--secret-file {}: the file is empty", path);
  if (secret.find('\0') != std::string::npos) {
    refuse("--secret-file {}: it contains a zero byte, which a secret cannot contain", path);
  }
  return secret;
}

std::string content_of(const std::string& option, const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  std::ostringstream content;
  content << file.rdbuf();
  if (!file || std::filesystem::is_directory(path))
    refuse("{} {}: cannot read the file", option, path);
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
  if (!is_name(name)) refuse("--env {}: \"{}\" is not a variable name", text, name);
  if (equals != std::string::npos) return {name, text.substr(equals + 1)};
  const char* value = std::getenv(name.c_str());
  if (!value) refuse("--env {}: the variable is not set: write --env {}=VALUE", text, name);
  return {name, value};
}

std::vector<std::string> words_of(const std::string& text) {
  std::istringstream stream(text);
  return {std::istream_iterator<std::string>(stream), {}};
}

void declare_places(CLI::App& app, LaunchArguments& given) {
  app.add_option("-n,--ranks", given.ranks,
                 "Number of ranks; default: one per slot of the hosts, or per core of this host")
      ->check(CLI::Range(1, kMaxRanks));
  auto* hosts =
      app.add_option("--hosts", given.hosts,
                     "Hosts to run on: a,b (ranks are spread evenly) or a:2,b:2 (with slots)");
  app.add_option("--hostfile", given.hostfile,
                 "File with one host per line: NAME [slots=N] [address=A]; # begins a comment")
      ->excludes(hosts);
  app.add_option("--rsh", given.rsh,
                 "Remote shell, run as RSH HOST COMMAND, which must forward standard input: ssh, "
                 "\"ssh -p 2222\", \"ip netns exec\", ...")
      ->capture_default_str();
}

void declare_network(CLI::App& app, LaunchArguments& given) {
  app.add_option("--master-addr", given.master_address,
                 "Address at which rank 0 listens; default: the first host's name or address");
  app.add_option("--master-port", given.master_port,
                 "Port at which rank 0 listens; default: --port, or else a free port")
      ->check(CLI::Range(1, 65535));
  app.add_option(
         "--port", given.port,
         "The one port on which the ranks of every host listen, for firewalls; default: free ports")
      ->check(CLI::Range(1, 65535));
  app.add_option("--interface", given.interface,
                 "Network interfaces, all used concurrently: names, prefixes or a comma list");
  app.add_flag("--encrypt", given.encrypt,
               "Encrypt traffic between ranks over the network (GRADWIRE_ENCRYPTION=on)");
}

void declare_settings(CLI::App& app, LaunchArguments& given) {
  app.add_option("--secret-file", given.secret_file,
                 "File with the job's secret, accessible only to this user (mode 600); default: a "
                 "generated secret");
  app.add_option("--env", given.variables,
                 "Variable for the ranks on all hosts: NAME=VALUE, or NAME with its value in this "
                 "environment; may be repeated (GRADWIRE_* are always passed on)")
      ->allow_extra_args(false);  // The program may follow NAME.
}

std::optional<std::uint16_t> port_of(int given) {
  if (given == 0) return std::nullopt;
  return static_cast<std::uint16_t>(given);
}

std::vector<HostEntry> hosts_of(const LaunchArguments& given) {
  if (!given.hostfile.empty())
    return parse_hostfile(content_of("--hostfile", given.hostfile), given.hostfile);
  if (!given.hosts.empty()) return parse_hosts(given.hosts);
  return {};
}

}  // namespace

void declare_launch_arguments(CLI::App& app, LaunchArguments& given) {
  declare_places(app, given);
  declare_network(app, given);
  declare_settings(app, given);
}

void declare_servers(CLI::App& app, LaunchArguments& given) {
  app.add_option("--servers", given.servers,
                 "So many of the ranks, the last ones, are parameter servers (docs/servers.md)")
      ->check(CLI::Range(0, kMaxRanks - 1))
      ->capture_default_str();
}

void declare_engine(CLI::App& app, LaunchArguments& given, bool measures_backends) {
  const std::string backends = measures_backends ? "; or torch.distributed's gloo or nccl" : "";
  app.add_option("--engine", given.engine,
                 "What communicates: own, or mpi, whose mpirun starts the ranks" + backends +
                     " (docs/engines.md)")
      ->check([measures_backends](const std::string& engine) {
        const bool is_backend = measures_backends && bootstrap::is_torch_backend(engine);
        return is_backend ? "" : bootstrap::engine_refusal(engine);
      })
      ->each([](const std::string& engine) { ::setenv("GRADWIRE_ENGINE", engine.c_str(), 1); });
  app.add_option("--mpirun", given.mpirun, "MPI's mpirun command, optionally with further options")
      ->capture_default_str();
}

bool LaunchArguments::starts_ranks(const bootstrap::Job& job) const {
  if (ranks == 0 && hosts.empty() && hostfile.empty()) return false;
  if (bootstrap::servers_job(job)) return false;  // Its role may have one rank.
  return job.launcher == "none" || (job.world_size == 1 && ranks_to_start(*this) > 1);
}

void check_fits(const LaunchArguments& given, const bootstrap::Job& job) {
  if (given.starts_ranks(job) || (given.ranks == 0 && given.hosts.empty())) return;
  const std::optional<int> ranks = given.ranks > 0 ? std::optional(given.ranks) : std::nullopt;
  const std::size_t asked = given.hosts.empty()
                                ? static_cast<std::size_t>(given.ranks)
                                : place_ranks(parse_hosts(given.hosts), ranks).size();
  const auto divided = bootstrap::servers_job(job);
  const int ranks_of_job = divided ? divided->all.world_size : job.world_size;
  if (asked == static_cast<std::size_t>(ranks_of_job)) return;
  refuse(
      "{} asks for {} ranks, but this process is already rank {} of a job of {} ranks (started by "
      "{}), which cannot start others: omit {}, or start this command outside the job",
      given.ranks > 0 ? "-n" : "--hosts", asked, job.rank, ranks_of_job, job.launcher,
      given.ranks > 0 ? "-n" : "--hosts");
}

int ranks_to_start(const LaunchArguments& given) {
  const auto hosts = hosts_of(given);
  const std::optional<int> ranks = given.ranks > 0 ? std::optional(given.ranks) : std::nullopt;
  if (hosts.empty()) return ranks.value_or(1);
  return static_cast<int>(place_ranks(hosts, ranks).size());
}

void declare_start_timeout(CLI::App& app, LaunchArguments& given) {
  app.add_option("--start-timeout", given.start_timeout,
                 "Seconds within which remote shells must start their ranks")
      ->capture_default_str()
      ->check(CLI::Range(0.1, 1e6));
}

LaunchOptions launch_options_of(const LaunchArguments& given) {
  LaunchOptions options;
  if (given.ranks > 0) options.ranks = given.ranks;
  options.servers = given.servers;
  options.hosts = hosts_of(given);
  options.rsh = words_of(given.rsh);
  options.start_timeout =
      std::chrono::duration_cast<Duration>(std::chrono::duration<double>(given.start_timeout));
  if (options.rsh.empty()) refuse("--rsh: expected a command such as ssh");
  options.master_address = given.master_address;
  options.master_port = port_of(given.master_port);
  options.port = port_of(given.port);
  options.interface = given.interface;
  options.engine = own_variables()["GRADWIRE_ENGINE"];
  if (const std::string why = bootstrap::engine_refusal(options.engine);
      !options.engine.empty() && !why.empty()) {
    refuse("GRADWIRE_ENGINE: {}", why);
  }
  options.mpirun = words_of(given.mpirun);
  if (options.mpirun.empty()) refuse("--mpirun: expected a command such as mpirun");
  if (!given.secret_file.empty()) options.secret = read_secret_file(given.secret_file);
  if (given.encrypt) options.variables.emplace_back("GRADWIRE_ENCRYPTION", "on");
  for (const std::string& text : given.variables) {
    options.variables.push_back(parse_variable(text));
  }
  return options;
}

int run_self(const std::vector<std::string>& arguments, int ranks, const std::string& name) {
  LaunchOptions options;
  options.ranks = ranks;
  options.name = name;
  return run_self(arguments, std::move(options));
}

int run_self(const std::vector<std::string>& arguments, LaunchOptions options) {
  options.program = {own_executable()};
  options.program.insert(options.program.end(), arguments.begin(), arguments.end());
  options.output = RankOutput::first_plain;
  return launch(options);
}

}  // namespace gradwire::cli
