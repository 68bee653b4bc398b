#include "gradwire/cli/launch/launch.h"

#include <algorithm>
#include <cctype>
#include <string_view>

#include <fmt/ranges.h>
#include <sys/prctl.h>
#include <unistd.h>

#include "gradwire/base/clock.h"
#include "gradwire/base/cpu.h"
#include "gradwire/base/random.h"
#include "gradwire/base/refuse.h"
#include "gradwire/bootstrap/environment_variables.h"
#include "gradwire/bootstrap/job_secret.h"
#include "gradwire/bootstrap/launchers.h"
#include "gradwire/bootstrap/mesh/local_rails.h"
#include "gradwire/bootstrap/servers_job.h"
#include "gradwire/cli/command_line.h"
#include "gradwire/cli/launch/cards.h"
#include "gradwire/cli/launch/mpirun.h"
#include "gradwire/cli/launch/process.h"
#include "gradwire/cli/launch/supervisor.h"
#include "gradwire/net/address.h"
#include "gradwire/net/descriptors.h"
#include "gradwire/net/socket.h"

extern char** environ;

namespace gradwire::cli {

VariableMap own_variables() {
  VariableMap variables;
  for (char** entry = environ; *entry; ++entry) {
    const std::string_view text = *entry;
    const std::size_t equals = text.find('=');
    if (equals == std::string_view::npos) continue;
    variables.insert_or_assign(std::string(text.substr(0, equals)), text.substr(equals + 1));
  }
  for (const char* name : kOfAnotherJob) variables.erase(name);
  return variables;
}

std::vector<std::string> entries_of(const VariableMap& variables) {
  std::vector<std::string> entries;
  for (const auto& [name, value] : variables) entries.push_back(name + "=" + value);
  return entries;
}

namespace {

/// Pipes of the rank's streams, its report, and descriptors that spawning it needs temporarily.
constexpr std::size_t kDescriptorsOfARank = 5;

/// While it lives, this process adopts orphaned descendants (PR_SET_CHILD_SUBREAPER).
class Subreaper {
 public:
  Subreaper() { ::prctl(PR_SET_CHILD_SUBREAPER, 1); }
  ~Subreaper() { ::prctl(PR_SET_CHILD_SUBREAPER, 0); }
  Subreaper(const Subreaper&) = delete;
  Subreaper& operator=(const Subreaper&) = delete;
};

}  // namespace

namespace {

bool is_python(std::string_view name) {
  if (!name.starts_with("python")) return false;
  return std::ranges::all_of(name.substr(6),
                             [](unsigned char c) { return std::isdigit(c) || c == '.'; });
}

std::optional<std::string> find_in(std::string_view path, std::string_view name) {
  while (!path.empty()) {
    const std::string_view folder = path.substr(0, path.find(':'));
    path.remove_prefix(std::min(folder.size() + 1, path.size()));
    if (!folder.starts_with('/')) continue;
    const std::string file = fmt::format("{}/{}", folder, name);
    if (::access(file.c_str(), X_OK) == 0) return file;
  }
  return std::nullopt;
}

void report_idle_hosts(const LaunchOptions& options, const JobPlan& plan) {
  std::vector<std::string> idle;
  for (std::size_t host = plan.ranks.back().place.host + 1; host < options.hosts.size(); ++host) {
    idle.push_back(options.hosts[host].name);
  }
  if (idle.empty()) return;
  fmt::print(stderr, "{}: no rank runs on {}: {} ranks need no more than {} of {} hosts\n",
             options.name, fmt::join(idle, ", "), plan.ranks.size(),
             options.hosts.size() - idle.size(), options.hosts.size());
}

}  // namespace

std::vector<std::string> with_interpreter(std::vector<std::string> program, std::string_view path) {
  if (program.front().ends_with(".py")) program.insert(program.begin(), "python3");
  if (!is_python(program.front())) return program;
  auto found = find_in(path, program.front());
  if (!found && program.front() == "python3") found = find_in(path, "python");
  if (found) program.front() = *found;
  return program;
}

int launch(const LaunchOptions& options) {
  if (options.engine == "mpi")
    return launch(read_arguments([&] { return through_mpirun(options); }));
  const Subreaper subreaper;
  const SteadyClock clock;
  JobPlan plan = read_arguments([&] { return plan_job(options); });
  if (const Status enough = net::allow_descriptors(kDescriptorsOfARank * plan.ranks.size());
      !enough) {
    throw Exception(enough.error().kind, enough.error().message);
  }
  report_idle_hosts(options, plan);
  return Supervisor(options, std::move(plan), clock).run();
}

namespace {

/// Rank 0 listens on the first address of its name.
bool is_loopback_here(const std::string& name) {
  const auto addresses = net::resolve(name, 0);
  return addresses && addresses->front().is_loopback();
}

/// Returns this host's address on the interfaces that a job with `other` uses.
Result<std::string> address_towards(const std::string& other, const std::string& interfaces) {
  GRADWIRE_ASSIGN_OR_RETURN(const auto addresses, net::resolve(other, 0));
  GRADWIRE_ASSIGN_OR_RETURN(const auto rails,
                            bootstrap::choose_local_rails(interfaces, addresses.front()));
  return rails.front().address.host();
}

}  // namespace

std::string default_master_address(const HostEntry& first, const HostEntry* other,
                                   const std::string& interfaces) {
  if (!other && first.address.empty()) return "127.0.0.1";
  const std::string address = address_of(first);
  if (!other || !first.address.empty() || !is_loopback_here(address)) return address;
  const auto reachable = address_towards(address_of(*other), interfaces);
  if (reachable && !bootstrap::is_loopback(*reachable)) return *reachable;
  refuse(
      "other hosts cannot reach rank 0 at \"{}\", which is a loopback address on this host{}: pass "
      "an address that they can reach with --master-addr",
      address, reachable ? "" : fmt::format(" ({})", reachable.error().message));
}

std::uint16_t free_master_port(const std::string& address) {
  for (const net::SocketAddress& candidate :
       net::resolve(address, 0).value_or(std::vector<net::SocketAddress>{})) {
    if (candidate.is_any()) {
      refuse(
          "--master-addr {}: expected the address at which the ranks can "
          "reach rank 0, not a wildcard",
          address);
    }
    if (const auto port = net::free_port(candidate)) return *port;
  }
  const unsigned long draw = std::stoul(random_hex(4), nullptr, 16);
  return static_cast<std::uint16_t>(20000 + draw % 10000);
}

std::string interfaces_of(const LaunchOptions& options) {
  return options.interface.empty() ? own_variables()["GRADWIRE_INTERFACE"] : options.interface;
}

namespace {

std::vector<HostEntry> hosts_of(const LaunchOptions& options) {
  if (!options.hosts.empty()) return options.hosts;
  return {HostEntry{this_host_name(), "", options.ranks.value_or(usable_cores())}};
}

/// GRADWIRE_* variables of the launcher, and those of cards, apply to the whole job, but the remote
/// shell does not forward them.
VariableList inherited_settings() {
  VariableList variables;
  for (const auto& [name, value] : own_variables()) {
    if (is_of_all_ranks(name)) variables.emplace_back(name, value);
  }
  return variables;
}

/// Returns the secret of ranks whose rendezvous is at `address`. Throws Exception(invalid_argument)
/// if it is too short for that address.
std::string secret_of(const LaunchOptions& options, const std::string& address) {
  const bool in_file = !options.secret.empty();
  const std::string given = in_file ? options.secret : own_variables()["GRADWIRE_SECRET"];
  if (given.empty()) return random_hex(32);
  const char* source = in_file ? "--secret-file" : "GRADWIRE_SECRET";
  if (const Status strong = bootstrap::check_secret_at(given, address, source); !strong) {
    throw Exception(strong.error());
  }
  return given;
}

/// Returns a host with ranks other than that of `first`; null if all ranks are on this host.
const HostEntry* other_host(const std::vector<RankPlan>& ranks, const RankPlan& first) {
  if (std::ranges::none_of(ranks, &RankPlan::remote)) return nullptr;
  const auto other = std::ranges::find_if(
      ranks, [&](const RankPlan& rank) { return rank.place.host != first.place.host; });
  return other == ranks.end() ? &first.host : &other->host;
}

std::uint16_t master_port_of(const LaunchOptions& options, const std::string& address) {
  if (options.master_port) return *options.master_port;
  if (options.port) return *options.port;
  const auto set = bootstrap::EnvironmentVariables(bootstrap::process_environment())
                       .number("GRADWIRE_PORT", 1, 65535);
  return set ? static_cast<std::uint16_t>(*set) : free_master_port(address);
}

/// Where the first rank of a job, or of a part of it, listens for the others.
struct Master {
  std::string address;
  std::uint16_t port = 0;
};

/// The master on the host of rank `first`.
Master master_on(const LaunchOptions& options, const std::vector<RankPlan>& ranks,
                 const RankPlan& first) {
  if (first.place.rank == 0 && !options.master_address.empty()) {
    return {options.master_address, master_port_of(options, options.master_address)};
  }
  const std::string address =
      default_master_address(first.host, other_host(ranks, first), interfaces_of(options));
  return {address, master_port_of(options, address)};
}

VariableList shared_variables(const LaunchOptions& options, const std::vector<RankPlan>& ranks,
                              const std::string& run) {
  const Master master = master_on(options, ranks, ranks.front());
  VariableList variables{{"WORLD_SIZE", std::to_string(ranks.size())},
                         {"MASTER_ADDR", master.address},
                         {"MASTER_PORT", std::to_string(master.port)},
                         {"GRADWIRE_SECRET", secret_of(options, master.address)}};
  if (!options.interface.empty()) variables.emplace_back("GRADWIRE_INTERFACE", options.interface);
  if (options.port) variables.emplace_back("GRADWIRE_PORT", fmt::to_string(*options.port));
  // Two runs may share a secret if the user provided it: the job id tells them apart.
  const std::string job_id = own_variables()["GRADWIRE_JOB_ID"];
  variables.emplace_back("GRADWIRE_JOB_ID", job_id.empty() ? run : job_id);
  variables.insert(variables.end(), options.variables.begin(), options.variables.end());
  return variables;
}

void add_own_variables(RankPlan& rank, const std::string& run, std::size_t hosts) {
  const auto add = [&](const char* name, const auto& value) {
    rank.variables.emplace_back(name, fmt::to_string(value));
  };
  add("RANK", rank.place.rank);
  add("LOCAL_RANK", rank.place.local_rank);
  add("LOCAL_WORLD_SIZE", rank.place.local_world_size);
  add("GROUP_RANK", rank.place.host);
  add("GROUP_WORLD_SIZE", hosts);
  add(kProcessMark, fmt::format("{}.{}", rank.place.rank, run));
}

/// A free port for another part of the job.
Master another_master(const LaunchOptions& options, const std::vector<RankPlan>& ranks,
                      const RankPlan& first) {
  Master master = master_on(options, ranks, first);
  master.port = free_master_port(master.address);
  return master;
}

/// Sets the place of a rank among those of its host that are alike.
void add_local_place(RankPlan& rank, const std::vector<RankPlan>& ranks,
                     const std::function<bool(const RankPlan&)>& is_alike) {
  int before = 0, all = 0;
  for (const RankPlan& other : ranks) {
    if (other.place.host != rank.place.host || !is_alike(other)) continue;
    ++all;
    if (other.place.rank < rank.place.rank) ++before;
  }
  rank.variables.emplace_back("LOCAL_RANK", fmt::to_string(before));
  rank.variables.emplace_back("LOCAL_WORLD_SIZE", fmt::to_string(all));
}

/// Workers and servers are jobs of their own (bootstrap::ServersJob).
void divide(const LaunchOptions& options, std::vector<RankPlan>& ranks) {
  const int servers = options.servers, workers = static_cast<int>(ranks.size()) - servers;
  const Master of_all = another_master(options, ranks, ranks.front());
  const Master of_servers =
      another_master(options, ranks, ranks[static_cast<std::size_t>(workers)]);
  const auto serves = [workers](const RankPlan& rank) { return rank.place.rank >= workers; };
  for (RankPlan& rank : ranks) {
    const auto add = [&](const char* name, const auto& value) {
      rank.variables.emplace_back(name, fmt::to_string(value));
    };
    const bool server = serves(rank);
    add(bootstrap::kRoleVariable, server ? "server" : "worker");
    add(bootstrap::kWorkersVariable, workers);
    add(bootstrap::kServersVariable, servers);
    add(bootstrap::kServersMasterVariable, fmt::format("{}:{}", of_all.address, of_all.port));
    add("WORLD_SIZE", server ? servers : workers);
    add_local_place(rank, ranks, [&](const RankPlan& other) { return serves(other) == server; });
    if (!server) continue;
    add("RANK", rank.place.rank - workers);
    add("MASTER_ADDR", of_servers.address);
    add("MASTER_PORT", of_servers.port);
  }
}

void check_servers(const LaunchOptions& options, std::size_t ranks) {
  const int servers = options.servers;
  if (servers == 0) return;
  if (options.port || !own_variables()["GRADWIRE_PORT"].empty()) {
    refuse(
        "--servers: workers, servers and all of them start at ports of their own; leave out {}, or "
        "let workers serve",
        options.port ? "--port" : "GRADWIRE_PORT");
  }
  if (servers < static_cast<int>(ranks)) return;
  refuse("--servers {} of {} ranks: at least one rank must work; give more ranks with -n", servers,
         ranks);
}

std::vector<RankPlan> place(const LaunchOptions& options) {
  const std::vector<HostEntry> hosts = hosts_of(options);
  std::vector<RankPlan> ranks;
  for (const Placement& placement : place_ranks(hosts, options.ranks)) {
    const HostEntry& host = hosts[placement.host];
    const bool remote = !options.hosts.empty() && !is_this_host(host);
    ranks.push_back({placement, host, remote, {}});
  }
  check_servers(options, ranks.size());
  return ranks;
}

}  // namespace

JobPlan plan_job(const LaunchOptions& options) {
  JobPlan plan{random_hex(8), place(options)};
  const VariableList shared = shared_variables(options, plan.ranks, plan.run);
  const VariableList inherited = inherited_settings();
  const std::size_t hosts = plan.ranks.back().place.host + 1;
  // Other hosts choose their cards themselves, as do the ranks of mpirun.
  const bool any_here = !std::ranges::all_of(plan.ranks, &RankPlan::remote);
  const VariableList cards =
      any_here && options.engine != "mpi" ? card_variables(interfaces_of(options)) : VariableList();
  for (RankPlan& rank : plan.ranks) {
    rank.variables = rank.remote ? inherited : cards;
    rank.variables.insert(rank.variables.end(), shared.begin(), shared.end());
    add_own_variables(rank, plan.run, hosts);
  }
  if (options.servers > 0) divide(options, plan.ranks);
  return plan;
}

}  // namespace gradwire::cli
